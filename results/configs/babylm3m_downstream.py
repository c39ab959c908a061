"""Downstream evaluation of seven objectives: minimal pairs and fine-tuning.

    jaxpt compare --config results/configs/babylm3m_downstream.py:DIR,TASKS \
        --workdir runs/down

DIR is that of babylm3m.py. TASKS has BLiMP (blimp/blimp.tar.xz), SST-2 (sst2/), CoLA
(cola/) and AG News (ag-news/train-10k.tsv.xz), as configs/tasks/ reads them. Three
seeds of each objective are trained at 5e12 FLOPs, evaluated on 20 pairs of each
paradigm, and fine-tuned with 100 and 1,000 labels; the same networks with random
initialization are the baseline. 53 minutes of processor time in all, half of it for
training.

Expected: no task separates any two objectives. BLiMP .538 (clm) to .560
(masked_diffusion) with standard deviations over seeds of .010 to .020; SST-2 with 1,000
labels .58 to .68 (majority baseline .50), CoLA a Matthews correlation of .03 to .06, AG
News .63 (bart) to .75 (clm_mlm). No objective is significantly better than its random
initialization, which reaches .63 to .67, .03 to .05 and .64 to .74. After 130 to 330
steps a network of 1.4M parameters has not learned what these tasks need, and with 3
seeds and 21 pairs of objectives the intervals are wide: a conclusion needs more FLOPs
(`compare.amount`) and 5 seeds.
"""

from jaxpt.config.config_files import read_config_file

OBJECTIVES = (
    "clm",
    "mlm",
    "span_corruption",
    "electra",
    "bart",
    "clm_mlm",
    "masked_diffusion",
)


def get_config(folders=".,."):
    """The model and text of babylm3m.py; a fine-tuning recipe for small networks."""
    folder, _, tasks = folders.partition(",")
    config = read_config_file(f"configs/babylm3m.py:{folder}")
    compare = config.compare
    compare.objectives, compare.seeds = OBJECTIVES, (0, 1, 2)
    compare.amount = 5e12
    compare.tasks = (
        f"blimp:{tasks}/blimp/blimp.tar.xz",
        f"finetune:configs/tasks/sst2.py:{tasks}/sst2",
        f"finetune:configs/tasks/cola.py:{tasks}/cola",
        f"finetune:configs/tasks/ag_news.py:{tasks}/ag-news/train-10k.tsv.xz",
    )
    compare.task_items = 67 * 20
    compare.task_sizes = (100, 1000)
    compare.task_settings = {
        "task": {"max_len": 64},
        "train": {"lr": (1e-3,), "batch_size": (16,), "min_steps": 60, "evals": 1},
    }
    return config
