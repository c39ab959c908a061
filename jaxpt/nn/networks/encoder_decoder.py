"""An encoder that reads a text, and a decoder that writes another: T5, BART."""

from jaxpt.nn.decoding import make_decoder
from jaxpt.nn.networks.network import TransformerNetwork


class EncoderDecoder(TransformerNetwork):
    """Two stacks on one table of tokens; features are the encoder's."""

    HEADS = ("seq2seq",)
    HAS_DECODER = True
    WRITES = "left_to_right"

    def make_decoder(self, start_id):
        """What answers a prompt, which the encoder reads."""
        return make_decoder(self, start_id=start_id)
