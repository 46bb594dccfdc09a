"""The winner of a search: of all trainings in a space the one with the best validation accuracy, itself.

A search trains every schedule it draws once. The paper's Table 2 has the test accuracy of the best of these trainings
by validation. It was recorded as the training went, beside its validation accuracy; the choice knows validation only.

Letters: T epochs.
"""

from __future__ import annotations
