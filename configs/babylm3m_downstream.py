"""What seven objectives are good for: minimal pairs, and fine-tuning on few labels.

    jaxpt compare --config configs/babylm3m_downstream.py:DIR,TASKS --workdir runs/down

DIR is that of babylm3m.py. TASKS holds BLiMP (blimp/blimp.tar.xz), SST-2 (sst2/), CoLA
(cola/) and AG News (ag-news/train-10k.tsv.xz), as configs/tasks/ reads them. Three
seeds of each objective are trained at 5e12 FLOPs, asked 20 pairs of each paradigm, and
fine-tuned with 100 and 1,000 labels, beside the same networks with fresh
parameters: 25 minutes on 2 cores to train, and about two for each run's answers.
"""

from babylm3m import get_config as get_base

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
    config = get_base(folder)
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
