"""Classify sentences by topic when 30% of them have the wrong topic, and list the wrong labels.

`TfidfVectorizer` returns a sparse matrix, which `S2EClassifier` accepts like any scikit-learn classifier.
`LogisticRegression` is trained on the same labels for comparison.

    python examples/text.py            # about a minute on one core
    python examples/text.py --quick    # a few seconds
    python examples/text.py --out DIR  # where to write label_issues.csv
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from s2e import S2EClassifier

TOPICS = {  # subject / verb / object / time: 6 × 5 × 5 × 4 sentences for each topic
    "cooking": "the chef|my aunt|our guest|a friend|the baker|his brother/"
    "fried|salted|served|tasted|prepared/the onions|a thick soup|the roast|fresh bread|some noodles/"
    "for dinner|this morning|with butter|before the guests came",
    "football": "the striker|our captain|a friend|the referee|his brother|the goalkeeper/"
    "missed|kicked|praised|watched|lost/the ball|a penalty|the match|the second half|the cup/"
    "this morning|before the final|in the rain|on Saturday",
    "health": "the nurse|my aunt|a patient|the doctor|a friend|the dentist/"
    "prescribed|examined|watched|took|prepared/the medicine|a sore throat|the bandage|a blood sample|the injection/"
    "this morning|after surgery|for dinner|last summer",
    "travel": "the pilot|my aunt|our guest|a tourist|the driver|his brother/"
    "missed|booked|praised|photographed|reached/the train|a cheap hotel|the harbour|the night ferry|an old castle/"
    "on Saturday|in the rain|last summer|with two suitcases",
}


def sentences(topic):
    """Return every sentence about a topic."""
    return [" ".join(parts) for parts in itertools.product(*(slot.split("|") for slot in TOPICS[topic].split("/")))]


def main():
    """Make sentences, corrupt labels, train both ways, print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute")
    parser.add_argument("--out", type=Path, help="where to write; a new temporary directory when not given")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="s2e-text-"))
    out.mkdir(parents=True, exist_ok=True)

    random = np.random.default_rng(0)
    names = np.array(list(TOPICS))
    texts = np.array([sentence for name in names for sentence in sentences(name)])  # (2400,)
    topics = np.repeat(np.arange(len(names)), len(texts) // len(names))
    wrong = random.random(len(texts)) < 0.3
    labels = names[np.where(wrong, (topics + random.integers(1, len(names), len(texts))) % len(names), topics)]
    seen, new = np.split(random.permutation(len(texts)), [800])
    new_texts, truth = texts[new], names[topics[new]]
    texts, labels, wrong = texts[seen], labels[seen], wrong[seen]

    settings = (
        {"n_trials": 4, "restarts": 1, "epochs": 30, "batch_size": 128, "learning_rate": 0.01} if options.quick else {}
    )
    model = make_pipeline(TfidfVectorizer(), S2EClassifier(random_state=0, **settings)).fit(texts, labels)
    plain = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(texts, labels)
    print(f"accuracy on new sentences, LogisticRegression: {plain.score(new_texts, truth):.1%}")
    print(f"accuracy on new sentences, S2EClassifier: {model.score(new_texts, truth):.1%}")

    audited = model[-1].find_label_issues().assign(sentence=texts, truly_wrong=wrong).sort_values("label_quality")
    audited.to_csv(out / "label_issues.csv", index_label="row")
    issues = audited[audited["is_label_issue"]]
    found = issues["truly_wrong"].sum()
    print(issues[["sentence", "given_label", "suggested_label"]].head(10).to_string(index=False))
    print(f"label issues: {len(issues)}, truly wrong: {found}; wrong labels in total: {wrong.sum()}")
    print(f"written to: {out}")


if __name__ == "__main__":
    main()
