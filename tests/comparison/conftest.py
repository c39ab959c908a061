"""A comparison that several files read, trained once a session."""

import pytest
from tiny import make_config


def draw_nothing(report, corpora_of, workdir, look):
    """One picture without compiling anything."""
    (workdir / "learning_curves.png").write_bytes(b"PNG")
    return {"learning_curves": "learning_curves.png"}


@pytest.fixture(scope="session")
def two_by_two(labelled, made_once):
    """The folder of a comparison of clm and mlm by two seeds; no test changes it."""
    # Not above: the caches' variables are set before anything of jaxpt is imported.
    from jaxpt.comparison import compare as comparison
    from jaxpt.comparison import plan_runs
    from jaxpt.report import figures

    config = make_config(
        labelled,
        compare__objectives=("clm", "mlm"),
        compare__seeds=(0, 1),
        compare__amount=1e8,
        data__label_field="era",
        data__split="documents",
        data__valid_fraction=0.25,
        train__checkpoint_every=0,
    )

    def compare(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "draw", draw_nothing)
            patch.setattr(plan_runs, "check_run", lambda *args: None)
            comparison.compare(config, folder / "both")

    return made_once("two_by_two", compare) / "both"
