"""Find wrong labels in a table of customers, and predict churn from the noisy labels.

The table has an ID, numbers, categories and missing values. One label in four is flipped. In a real table the flipped
labels are unknown; here they are known, so the script can count how many of them were found.

    python examples/table.py            # about a minute on one core
    python examples/table.py --quick    # a few seconds
    python examples/table.py --out DIR  # where to write the tables and label_issues.csv

The same on the command line, in the directory with the two tables that the script writes:

    s2e search customers.csv --label churn --id customer --out run
    s2e audit run
    s2e predict run new.csv -o predictions.csv
    s2e report run
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from s2e import S2EClassifier

COMMANDS = __doc__[__doc__.index("    s2e search") :].rstrip()


def customers(rows, first, random):
    """Return a table of customers indexed by their IDs, and their true labels: whether each of them leaves."""
    table = pd.DataFrame(
        {
            "months": random.integers(1, 73, rows),
            "monthly_fee": random.gamma(9.0, 5.0, rows).round(2),
            "support_calls": random.poisson(2.0, rows),
            "plan": random.choice(["basic", "plus", "family"], rows, p=[0.5, 0.3, 0.2]),
            "pays_by": random.choice(["card", "invoice", "transfer"], rows),
        },
        index=pd.Index([f"C{first + row:05d}" for row in range(rows)], name="customer"),
    )
    bound = table["plan"].map({"basic": 0.0, "plus": 0.8, "family": 2.5})
    reasons = table["support_calls"] + table["monthly_fee"] / 15 - table["months"] / 12 - bound
    leaves = np.where(reasons + random.normal(0.0, 0.3, rows) > 0.5, "yes", "no")
    table.loc[random.random(rows) < 0.05, "monthly_fee"] = np.nan
    table.loc[random.random(rows) < 0.05, "plan"] = None
    return table, leaves


def main():
    """Make the tables, fit, print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute")
    parser.add_argument("--out", type=Path, help="where to write; a new temporary directory when not given")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="s2e-table-"))
    out.mkdir(parents=True, exist_ok=True)

    random = np.random.default_rng(0)
    known, truth = customers(2000, 0, random)
    new, new_truth = customers(1000, 2000, random)
    flipped = random.random(len(known)) < 0.25
    known["churn"] = np.where(flipped, np.where(truth == "yes", "no", "yes"), truth)
    known.to_csv(out / "customers.csv")
    new.to_csv(out / "new.csv")

    settings = {"n_trials": 4, "restarts": 1, "epochs": 15, "learning_rate": 0.005} if options.quick else {}
    model = S2EClassifier(random_state=0, **settings).fit(known.drop(columns="churn"), known["churn"])

    audited = model.find_label_issues().assign(truly_wrong=flipped).sort_values("label_quality")
    audited.to_csv(out / "label_issues.csv")  # indexed by customer ID, lowest quality first
    issues = audited[audited["is_label_issue"]]
    found = issues["truly_wrong"].sum()
    print(issues[["given_label", "suggested_label", "label_quality"]].head(10).to_string(float_format="%.4f"))
    print(f"label issues: {len(issues)}, truly wrong: {found}; wrong labels in total: {flipped.sum()}")
    print(f"estimated noise rate: {model.noise_rate_:.1%}, true noise rate: {flipped.mean():.1%}")
    print(f"accuracy on new customers: {np.mean(model.predict(new) == new_truth):.1%}")
    print(f"written to: {out}")
    print(f"The same on the command line, in that directory:\n\n{COMMANDS}")


if __name__ == "__main__":
    main()
