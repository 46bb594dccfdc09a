"""`S2EClassifier` beyond scikit-learn's own checks: inputs, results, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from torch import nn

from fitted_classifiers import POOL, QUICK, Narrow, fitted, of_any_shape, three_blobs
from s2e import S2EClassifier, S2EWarning
from s2e.errors import InvalidInput, S2EError
from s2e.methods import SEARCHABLE
from s2e.workflows import pipeline, time_budget

EPOCHS = 10
ENOUGH = 6  # epochs after which most is learnt


def with_wrong_labels(labels: np.ndarray, share: float = 0.3, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    wrong = generator.random(len(labels)) < share
    return np.where(wrong, (labels + generator.integers(1, 3, len(labels))) % 3, labels), wrong


@pytest.fixture(scope="module")
def noisy():
    X, y = three_blobs()
    given, wrong = with_wrong_labels(y)
    return X, given, wrong, y


@pytest.fixture(scope="module")
def classifier(noisy):
    return fitted(noisy[0], noisy[1], n_trials=6, epochs=EPOCHS, **POOL)


@pytest.fixture(scope="module")
def quick(noisy):
    """A barely trained classifier, for claims that are not about accuracy."""
    return fitted(noisy[0], noisy[1])


# Results


def test_predictions_are_correct_where_labels_were_wrong(classifier, noisy):
    X, _, wrong, truth = noisy
    assert (classifier.predict(X)[wrong] == truth[wrong]).mean() > 0.9
    assert classifier.score(*three_blobs(seed=5)) > 0.9


def test_wrong_labels_are_found_and_corrected(classifier, noisy):
    _, given, wrong, truth = noisy
    found = np.zeros(len(given), dtype=bool)
    found[classifier.label_issues_] = True
    assert (found & wrong).sum() / wrong.sum() > 0.85
    assert (found & wrong).sum() / found.sum() > 0.85
    assert (classifier.suggested_labels_[found & wrong] == truth[found & wrong]).mean() > 0.95
    assert (classifier.suggested_labels_[~found] == given[~found]).all()
    assert abs(classifier.noise_rate_ - wrong.mean()) < 0.08
    np.testing.assert_allclose(classifier.transition_.sum(axis=1), 1)
    assert (np.diff(classifier.label_quality_[classifier.label_issues_]) >= 0).all(), "the least probable come first"


def test_methods_compete_with_auto(noisy):
    assert fitted(noisy[0], noisy[1], method="auto").method_ in SEARCHABLE


def test_label_issues_have_the_columns_of_find_label_issues(classifier, noisy):
    table = classifier.find_label_issues()
    columns = ["is_label_issue", "label_quality", "given_label", "suggested_label", "confidence"]
    assert list(table.columns) == columns
    np.testing.assert_array_equal(table["given_label"], noisy[1])
    np.testing.assert_array_equal(np.flatnonzero(table["is_label_issue"]), np.sort(classifier.label_issues_))
    np.testing.assert_array_equal(table["suggested_label"] != table["given_label"], table["is_label_issue"])
    assert (table["confidence"] >= table["label_quality"]).all()


def test_labels_are_audited_by_networks_not_trained_on_them(classifier, noisy):
    low, high = classifier.noise_rate_interval_
    assert 0 <= low <= classifier.noise_rate_ <= high <= 1
    assert low <= (noisy[1] != noisy[3]).mean() <= high
    assert classifier.transition_interval_.shape == (2, *classifier.transition_.shape)
    low, high = classifier.estimated_accuracy_interval_
    assert low <= classifier.estimated_accuracy_ <= high
    assert classifier.audit_message_ == ""


def test_given_validation_replaces_the_held_out_part(noisy, quick):
    X, given, _, _ = noisy
    found = S2EClassifier(**QUICK).fit(X, given, X_val=X[:30], y_val=noisy[3][:30])
    assert found.validation_ == "clean"
    assert len(found.label_quality_) == len(X)
    assert quick.validation_ == "noisy"


def test_a_few_trusted_samples_decide_which_of_two_classes_is_right(noisy):
    """Nearly half of the labels of each class are those of the next one."""
    X, _, _, truth = noisy
    flipped = np.random.default_rng(0).random(len(X)) < 0.48
    given = np.where(flipped, (truth + 1) % 3, truth)
    trusted = S2EClassifier(**{**QUICK, **POOL}).fit(X, given, X_val=X[:24], y_val=truth[:24])
    assert trusted.score(*three_blobs(seed=5)) > 0.95
    assert (trusted.label_quality_[flipped] < 0.5).mean() > 0.9


@pytest.mark.parametrize("kind", ["sparse", "texts"])
def test_trusted_samples_are_of_the_kind_of_the_others(noisy, kind):
    X, given, _, truth = noisy
    words = np.array(["red", "green", "blue"])[truth]
    samples = sparse.csr_matrix(np.maximum(X, 0)) if kind == "sparse" else [f"a {word} thing" for word in words]
    found = S2EClassifier(**{**QUICK, **POOL}).fit(samples, given, X_val=samples[:30], y_val=truth[:30])
    assert found.final_name_ != "networks"
    assert (found.predict(samples) == truth).mean() > 0.9


def fitted_to_reviewed(X, y, reviewed, **changes):
    return S2EClassifier(**{**QUICK, **changes}).fit(X, y, reviewed=reviewed)


def test_reviewed_labels_replace_those_of_y_and_are_trusted(noisy, tmp_path):
    X, given, wrong, y = noisy
    rows = np.flatnonzero(wrong)[:20]
    by_position = {int(row): y[row] for row in rows}
    found = fitted_to_reviewed(X, given, by_position)
    assert (found.label_quality_[rows] == 1).all()
    assert not set(found.label_issues_) & set(rows)
    issues = found.find_label_issues()
    assert (issues["given_label"].to_numpy()[rows] == y[rows]).all()
    lines = [f"x,{row},{given[row]},wrong,{y[row]}" for row in rows]
    (tmp_path / "reviewed.csv").write_text("\n".join(["id,row,given_label,decision,label", *lines]) + "\n")
    pooled = fitted_to_reviewed(X, given, by_position, **POOL)
    assert (pooled.label_quality_[rows] == 1).all()
    for same in (pd.Series(by_position), tmp_path / "reviewed.csv", [str(tmp_path / "reviewed.csv")]):
        other = fitted_to_reviewed(X, given, same)
        np.testing.assert_array_equal(other.label_quality_, found.label_quality_)


@pytest.mark.parametrize(
    ("reviewed", "message"),
    [
        ({0: 7}, "`label` must be one of"),
        ({10**6: 0}, "there is none '1000000'"),
        ({"a": 0}, "positions in `reviewed` must be integers"),
        (3, "`reviewed` must be a dictionary or Series"),
        ("missing.csv", "does not exist"),
    ],
)
def test_reviewed_labels_that_cannot_be_used_are_refused(noisy, reviewed, message):
    with pytest.raises(S2EError, match=message):
        S2EClassifier(**QUICK).fit(noisy[0], noisy[1], reviewed=reviewed)


def test_study_and_schedule_are_attributes(classifier):
    assert len(classifier.study_.trials) == 6
    assert classifier.schedule_.shape == (EPOCHS,)
    assert 0 <= classifier.validation_accuracy_ <= 1


# Inputs


@pytest.mark.parametrize(
    "names",
    [np.array(["cat", "dog", "emu"]), np.array(["a", "b", "c"], dtype=object), np.array([3, -1, 7]), [2.0, 0.0, 1.0]],
    ids=["text", "objects", "integers", "floats"],
)
def test_labels_of_any_type_are_returned(noisy, names):
    labels = np.asarray(names)[noisy[1]]
    found = fitted(noisy[0], labels)
    np.testing.assert_array_equal(found.classes_, np.unique(labels))
    assert found.predict(noisy[0]).dtype == found.classes_.dtype
    assert set(found.predict(noisy[0])) <= set(labels)


def test_booleans_and_pandas_columns_are_labels(noisy):
    assert fitted(noisy[0], noisy[1] == 1).predict(noisy[0]).dtype == bool
    series = pd.Series(np.array(["x", "y", "z"])[noisy[1]])
    for column in (series, series.astype("category")):
        assert set(fitted(noisy[0], column).predict(noisy[0])) <= {"x", "y", "z"}


def test_lists_tensors_and_arrays_are_equivalent(noisy, quick):
    X, given = noisy[0], noisy[1]
    expected = quick.predict_proba(X)
    np.testing.assert_array_equal(fitted(X.tolist(), given.tolist()).predict_proba(X.tolist()), expected)
    np.testing.assert_array_equal(fitted(torch.from_numpy(X), given).predict_proba(torch.from_numpy(X)), expected)


def test_missing_numbers_are_accepted(noisy):
    X = noisy[0].copy()
    X[::7, 1] = np.nan
    assert fitted(X, noisy[1], epochs=ENOUGH, **POOL).score(X, noisy[3]) > 0.7


def test_a_frame_with_text_categories_and_gaps_is_accepted(noisy):
    X, given = noisy[0], noisy[1]
    frame = pd.DataFrame(X, columns=list("abcd"), index=[f"row {index}" for index in range(len(X))])
    frame["city"] = np.array(["Rome", "Oslo", None], dtype=object)[noisy[3]]
    frame["size"] = pd.Categorical(np.array(["S", "M", "L"])[noisy[3]])
    found = fitted(frame, given, epochs=ENOUGH, **POOL)
    assert found.find_label_issues().index.equals(frame.index)
    assert list(found.feature_names_in_) == [*"abcd", "city", "size"]
    assert found.score(frame, noisy[3]) > 0.7
    strange = frame.assign(city="Lima")
    with pytest.warns(S2EWarning, match="unknown categories are ignored: 'Lima'"):
        assert len(found.predict(strange.iloc[:3])) == 3, "a city never seen before"
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(frame.drop(columns="city"))


def test_sparse_samples_are_accepted(noisy):
    X = sparse.coo_array(np.maximum(noisy[0], 0))
    found = fitted(X, noisy[1], epochs=ENOUGH, **POOL)
    assert found.score(X, noisy[3]) > 0.6
    assert found.n_features_in_ == 4


def test_text_in_a_pipeline():
    topics = ["ball goal team match", "bread oven flour salt", "rain wind cloud storm"]
    generator = np.random.default_rng(0)
    truth = np.arange(180) % 3
    texts = [" ".join(generator.choice(topics[label].split(), 6)) for label in truth]
    given, _ = with_wrong_labels(truth)
    classifier = S2EClassifier(**{**QUICK, **POOL, "epochs": ENOUGH, "sparse_components": 8})
    pipeline = make_pipeline(TfidfVectorizer(), classifier).fit(texts, given)
    assert pipeline.score(texts, truth) > 0.9


def test_channels_may_be_first_or_last():
    generator = np.random.default_rng(0)
    labels = np.arange(96) % 2
    images = generator.integers(0, 100, size=(96, 3, 8, 8), dtype=np.uint8) + 100 * labels[:, None, None, None]
    images = images.astype(np.uint8)
    first = fitted(images, labels).predict_proba(images)
    last = fitted(images.transpose(0, 2, 3, 1), labels).predict_proba(images.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(first, last)
    grey = fitted(images[:, 0], labels, epochs=2 * ENOUGH, **POOL)
    assert grey.score(images[:, 0], labels) > 0.9
    with pytest.raises(InvalidInput, match="as in training"):
        grey.predict(images[:, 0, :4].repeat(2, axis=2)[:, :, :8])
    scaled = images[:, 0] / 255.0
    assert fitted(scaled, labels, epochs=2 * ENOUGH, **POOL).score(scaled, labels) > 0.9


@pytest.mark.parametrize("network", [Narrow, lambda: Narrow(), of_any_shape], ids=["class", "lambda", "of two"])
def test_factories_of_modules_are_networks(noisy, network):
    found = fitted(noisy[0], noisy[1], network=network)
    assert found.predict_proba(noisy[0]).shape == (len(noisy[0]), 3)


# scikit-learn's tools


def test_cross_validation_and_grid_search(noisy):
    X, given = noisy[0], noisy[1]
    search = GridSearchCV(S2EClassifier(**QUICK), {"epochs": [1, 3]}, cv=2).fit(X, given)
    assert search.best_params_["epochs"] in (1, 3)
    assert cross_val_predict(S2EClassifier(**QUICK), X, given, cv=2, method="predict_proba").shape == (len(X), 3)


@pytest.mark.slow
def test_other_processes_give_the_same_predictions(noisy):
    here, elsewhere = (
        cross_val_predict(S2EClassifier(**QUICK), noisy[0], noisy[1], cv=2, n_jobs=jobs, method="predict_proba")
        for jobs in (None, 2)
    )
    np.testing.assert_array_equal(here, elsewhere)


def test_result_depends_on_random_state(noisy, quick):
    X, given = noisy[0], noisy[1]
    first = quick.predict_proba(X)
    np.testing.assert_array_equal(fitted(X, given).predict_proba(X), first)
    assert not np.array_equal(fitted(X, given, random_state=1).predict_proba(X), first)


def test_a_chosen_generation_size_is_searched_for_five_generations(noisy, monkeypatch):
    monkeypatch.setattr(pipeline, "choose_generation_size", lambda _task, _kinds, sizes: sizes[0] // 2)
    monkeypatch.setattr(pipeline, "is_long_enough", lambda *_: False)
    assert len(fitted(noisy[0], noisy[1], n_trials=None, epochs=1, generation_size="auto").study_.trials) == 15


def test_threads_are_restored_and_change_nothing(noisy):
    X, given = noisy[0], noisy[1]
    before = torch.get_num_threads()
    alone = fitted(X, given, n_jobs=1, epochs=1, **POOL).predict_proba(X)
    assert torch.get_num_threads() == before
    np.testing.assert_array_equal(fitted(X, given, n_jobs=2, epochs=1, **POOL).predict_proba(X), alone)
    assert torch.get_num_threads() == before


def test_progress_is_shown_only_if_verbose(noisy, capfd):
    fitted(noisy[0], noisy[1])
    assert capfd.readouterr() == ("", "")
    fitted(noisy[0], noisy[1], verbose=1)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert all(stage in shown.err for stage in ("relabelling validation", "search", "final training"))


# Refusals


def test_sample_weights_are_refused(noisy):
    X, given = noisy[0], noisy[1]
    with pytest.raises(InvalidInput, match="the schedule selects samples"):
        S2EClassifier(**QUICK).fit(X, given, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weigth'"):
        S2EClassifier(**QUICK).fit(X, given, sample_weigth=np.ones(len(X)))


def test_all_bad_parameters_are_reported_at_once(noisy):
    with pytest.raises(InvalidInput) as caught:
        S2EClassifier(n_trials=0, epochs=2.5, learning_rate=-1, validation_share=1.5).fit(noisy[0], noisy[1])
    assert all(name in str(caught.value) for name in ("n_trials", "epochs", "learning_rate", "validation_share"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "resnet"}, "`network` must be one of"),
        ({"network": 7}, "must be a name or a function"),
        ({"network": nn.ReLU.extra_repr}, "but got one with 1"),
        ({"method": "standard"}, "must have a keep rate"),
        ({"space": "nowhere"}, "`space` must be one of"),
        ({"sampler": "unknown"}, "`sampler` must be one of"),
        ({"generation_size": "wide"}, "`generation_size` must be an integer of at least 1 or auto, but got 'wide'"),
    ],
)
def test_a_bad_name_is_refused(noisy, changes, message):
    with pytest.raises(S2EError, match=message):
        fitted(noisy[0], noisy[1], **changes)


def test_validation_samples_are_checked(noisy):
    X, given = noisy[0], noisy[1]
    with pytest.raises(InvalidInput, match="given together"):
        S2EClassifier(**QUICK).fit(X, given, X_val=X)
    with pytest.raises(InvalidInput, match="classes that are in `y`"):
        S2EClassifier(**QUICK).fit(X, given, X_val=X[:4], y_val=[0, 1, 2, 3])
    with pytest.raises(InvalidInput, match="one label for each"):
        S2EClassifier(**QUICK).fit(X, given, X_val=X[:4], y_val=[0, 1])
    with pytest.raises(InvalidInput, match="are missing"):
        fitted(X[:3], np.array(["a", None, "b"], dtype=object))


# Later samples in another form


def test_dense_and_sparse_samples_are_equivalent(noisy):
    X = np.maximum(noisy[0], 0)
    for trained_on, other in ((X, sparse.csr_matrix(X)), (sparse.csr_matrix(X), X)):
        found = fitted(trained_on, noisy[1], **POOL)
        np.testing.assert_array_equal(found.predict_proba(other), found.predict_proba(trained_on))


def test_images_and_rows_are_not_interchangeable(noisy):
    images = np.zeros((len(noisy[0]), 4, 4))
    with pytest.raises(InvalidInput, match="rows of columns"):
        fitted(noisy[0], noisy[1]).predict(images)
    with pytest.raises(InvalidInput, match="images of shape"):
        fitted(images, noisy[1]).predict(noisy[0])


# Columns


@pytest.mark.filterwarnings("ignore::s2e.errors.S2EWarning")
def test_what_became_of_every_column_is_a_table(noisy, caplog):
    X, given, _, _ = noisy
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(note=[f"fox {row}" for row in range(len(X))], same="x")
    found = fitted(frame, given)
    assert found.columns_["kind"].tolist() == ["number", "number", "left out", "left out"]
    assert "name it in `text`" in found.columns_["encoding"][2]
    assert "columns left out: 'note', " in caplog.text
    read = fitted(frame, given, text=["note"], drop=["same"])
    assert read.columns_.set_index("name")["inputs"]["note"] > 1
    assert read.columns_["encoding"].tolist()[-1] == "it is named in `drop`"
    with pytest.raises(InvalidInput, match="`drop` and `text` must be None unless `X` is a table"):
        fitted(sparse.csr_matrix(X), given, drop=["a"])


# Time and networks


def test_a_time_budget_ends_the_search_before_its_last_trial(noisy, monkeypatch):
    monkeypatch.setattr(time_budget.LimitedListener, "_finishes_in_time", lambda *_: False)
    stopped = fitted(noisy[0], noisy[1], n_trials=6, generation_size=2, time_budget="1h")
    assert (len(stopped.study_.trials), stopped.n_trials_, stopped.status_) == (2, 6, "stopped early")
    assert fitted(noisy[0], noisy[1]).status_ == "complete"


def test_a_time_budget_too_short_for_one_generation_is_refused_with_arguments_of_python(noisy):
    with pytest.raises(InvalidInput, match=r"`time_budget` must be enough for one generation.*`epochs=\d+`\.$"):
        fitted(noisy[0], noisy[1], epochs=100_000, time_budget=2)
    with pytest.raises(InvalidInput, match="`time_budget` must be a time such as 90s, 2m or 1h, but got 'soon'"):
        fitted(noisy[0], noisy[1], time_budget="soon")


def test_networks_are_the_fitted_modules(noisy):
    assert not hasattr(S2EClassifier(), "networks_")
    found = fitted(noisy[0], noisy[1], ensemble=1)
    inputs = torch.from_numpy(found.encode(noisy[0]))
    with torch.no_grad():
        probabilities = torch.stack([network(inputs).softmax(dim=1) for network in found.networks_]).mean(dim=0)
    np.testing.assert_allclose(probabilities, found.predict_proba(noisy[0]), atol=1e-6)


# Imbalance, scores and ensembles


@pytest.mark.parametrize("rare", [1, 2])
@pytest.mark.parametrize(
    "changes", [POOL, {"scoring": "balanced_accuracy"}, {"scoring": "average_precision"}], ids=["pool", "mean", "area"]
)
@pytest.mark.usefixtures("few_trees")
def test_a_class_of_one_or_two_samples_is_accepted(rare, changes):
    X, y = three_blobs(60)
    few = np.where(y == 2, 1, y)
    few[np.flatnonzero(y == 2)[:rare]] = 2
    found = fitted(X, few, batch_size=16, **changes)
    assert found.predict_proba(X).shape == (60, 3)


def test_the_score_of_validation_is_the_one_named(noisy):
    X, y = noisy[0], noisy[3]
    few = np.flatnonzero((y < 2) | (np.arange(len(y)) % 10 == 0))
    names = ("accuracy", "balanced_accuracy", "average_precision")
    found = [
        S2EClassifier(**QUICK, scoring=name, ensemble=1).fit(X[few], y[few], X_val=X[few], y_val=y[few])
        for name in names
    ]
    assert len({each.validation_accuracy_ for each in found}) == 3


def test_an_unknown_score_is_refused(noisy):
    with pytest.raises(InvalidInput, match="`scoring` must be one of"):
        fitted(noisy[0], noisy[1], scoring="f1")


def test_one_member_has_the_networks_of_one_pair(noisy):
    assert len(fitted(noisy[0], noisy[1], ensemble=1)._classifier.networks) == 2
    assert len(fitted(noisy[0], noisy[1], ensemble=4)._classifier.networks) > 2
    assert len(fitted(noisy[0], noisy[1], distil=True)._classifier.networks) == 1


@pytest.mark.parametrize("kind", [list, np.array, pd.Series], ids=lambda kind: kind.__name__)
def test_texts_are_samples(kind):
    generator = np.random.default_rng(0)
    topics = {"cooking": ["soup", "bread", "salt"], "football": ["goal", "ball", "team"]}
    right = np.repeat(list(topics), 40)
    texts = [" ".join(generator.choice(topics[topic], 2)) for topic in right]
    labels = np.where(generator.random(80) < 0.2, right[::-1], right)
    pool = POOL if kind is list else {"final_estimator": None}
    fitted = S2EClassifier(n_trials=6, epochs=20, random_state=0, **pool).fit(kind(texts), labels)
    assert fitted.columns_[["name", "kind"]].to_numpy().tolist() == [["text", "text"]]
    assert fitted.predict(kind(["salt soup", "team goal"])).tolist() == ["cooking", "football"]
    assert (fitted.predict(kind(texts)) == right).mean() > 0.95
