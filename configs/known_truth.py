"""Text of a hidden Markov model, whose exact conditionals are known.

    jaxpt train --config configs/known_truth.py --workdir runs/truth
    jaxpt train --config configs/known_truth.py:star:names=20 --workdir runs/star

After the colon any language of docs/text.md, with its parameters; the default is
`hmm:`, 64 states and 128 symbols. About 2 minutes on 2 cores. Expected for clm on
`hmm:`: valid_loss 4.70, which is that of bigrams. The exact answer has 4.50 nats a
token, unigrams have 4.79.
"""

from quickstart import get_config as get_base

from jaxpt.languages.parameters import read_language


def get_config(path="hmm:"):
    """One document in each row, drawn for its step; with any objective.

    --config.objective=NAME trains another objective on the same documents.
    """
    config = get_base()
    config.data.path = path
    config.data.row_length = read_language(path).spec.document_length
    config.data.rows = "packed"
    config.data.long_documents = "truncate"  # their [EOS], which needs no prediction
    config.model.max_len = config.data.row_length
    config.train.steps = 400
    config.train.batch_size = 32
    config.eval.num_rows = 256
    return config
