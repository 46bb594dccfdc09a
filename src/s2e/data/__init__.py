"""Labelled samples: loading by name or path, label noise, and the split into training, validation and test.

pandas, Pillow and `datasets` are imported only when a data set needs them.
"""

from s2e.data.conversion import as_labelled_data, as_labelled_parts, samples_and_labels
from s2e.data.image_encoding import ImageEncoder
from s2e.data.input_readers import ENCODING, ArrayReader, reader_from_json
from s2e.data.loading import available, load, needs_download
from s2e.data.natural_order import natural_key
from s2e.data.noise import achieved_rate, check_transition_matrix, parse_noise, read_matrix
from s2e.data.preparing import (
    Prepared,
    check_preparation,
    corrupt_and_split,
    load_source,
    prepare,
    with_at_most,
    with_noise,
)
from s2e.data.samples import (
    ColumnUse,
    LabelledData,
    Source,
    Splits,
    check_trainable,
    default_share,
    fingerprint,
    hold_out,
    in_rows,
)

__all__ = [
    "ENCODING",
    "ArrayReader",
    "ColumnUse",
    "ImageEncoder",
    "LabelledData",
    "Prepared",
    "Source",
    "Splits",
    "achieved_rate",
    "as_labelled_data",
    "as_labelled_parts",
    "available",
    "check_preparation",
    "check_trainable",
    "check_transition_matrix",
    "corrupt_and_split",
    "default_share",
    "fingerprint",
    "hold_out",
    "in_rows",
    "load",
    "load_source",
    "natural_key",
    "needs_download",
    "parse_noise",
    "prepare",
    "read_matrix",
    "reader_from_json",
    "samples_and_labels",
    "with_at_most",
    "with_noise",
]
