"""Models and tokenizers that were saved before: from a ``save_pretrained`` folder, or the hub's by its id.

Whatever lies in the folder, none of its code is executed and nobody is asked; a folder is read without a network. What
is returned is whole: trained weights for every part, all finite, and an embedding for each of the tokenizer's tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rlnlp.offpolicy import q_heads
from rlnlp.vocabulary import limit_vocabulary, limited

if TYPE_CHECKING:  # its modelling code takes seconds to import
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def load(folder: str | Path, device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A language model (causal or encoder-decoder, in evaluation mode, fp32) and its tokenizer.

    ``folder`` was written by ``save_pretrained``, or is a hub id. No remote code is run. A limited vocabulary is
    limited again and a Q head installed again. Raises ``ValueError`` with the reason where it cannot be loaded: a file
    that cannot be read, weights that are missing or not finite, a tokenizer with more tokens than the head.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    try:
        config = read_config(folder)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model = read_model(kind, folder, "lm_head." if getattr(config, "q_head", None) else "").to(device)
        tokenizer = read_tokenizer(folder)
        check_tokens(model, tokenizer, folder)
    except ValueError as error:
        raise ValueError(f"model {folder}: cannot be loaded as a language model with its tokenizer: {error}") from error
    if q_heads.installed(model):
        q_heads.restore(model, folder)
    if limited(model):
        limit_vocabulary(model, model.config.allowed_token_ids)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def options(place: str | Path) -> dict:
    """What every ``from_pretrained`` is told. Raises ``ValueError`` for a path where there is no folder."""
    path = Path(place).expanduser()
    if not path.is_dir() and (path.is_absolute() or str(place)[:1] in ".~" or str(place).count("/") > 1):
        raise ValueError(f"{place}: no such folder")
    return {"trust_remote_code": False, "local_files_only": path.is_dir()}


def read_config(place: str | Path) -> PretrainedConfig:
    """The model's config.json. Raises ``ValueError`` with the reason where it cannot be read."""
    from transformers import AutoConfig

    return _read(AutoConfig, place)


def read_tokenizer(place: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer. Raises ``ValueError`` with the reason where it cannot be loaded."""
    from transformers import AutoTokenizer

    tokenizer = _read(AutoTokenizer, place)
    tokenizer.init_kwargs["local_files_only"] = False  # how it was read is no part of it, nor of what it is saved as
    return tokenizer


def read_model(kind: type, place: str | Path, elsewhere: str = "") -> PreTrainedModel:
    """The model of the class ``kind`` (``AutoModelForCausalLM``, ...), fp32, in evaluation mode.

    elsewhere: beginning of the names of weights that the caller puts in himself, "" = none.
    Raises ``ValueError`` naming the file that cannot be read, the parts without trained weights, or the first weight
    that is not finite.
    """
    model, found = _read(kind, place, dtype=torch.float32, output_loading_info=True)
    missing = sorted(name for name in found["missing_keys"] if not elsewhere or not name.startswith(elsewhere))
    if missing:
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        raise ValueError(
            f"{place}: no trained weights for {', '.join(missing[:4])}{more}; is it a {type(model).__name__}?"
        )
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise ValueError(f"{place}: the weight {name} holds NaN or an infinity")
    return model.eval()


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> Path:
    """``save_pretrained`` of both into ``folder``, which ``rlnlp.load`` and transformers read; returns the folder.

    transformers alone leaves out what it does not know: the head of a DQN's own, and the limit of a smaller vocabulary.
    Raises ``ValueError`` where a file stands in its place.
    """
    for place in (Path(folder), *Path(folder).parents):
        if place.is_file():  # transformers would only log it, and write nothing
            raise ValueError(f"{place}: expected a folder to save into, found a file")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def check_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, place: str | Path) -> None:
    """Raise ``ValueError`` where the tokenizer has a token that the model has no embedding for, or no logit."""
    output = model.get_output_embeddings()
    sizes = {"the input embedding": model.get_input_embeddings().num_embeddings}
    if output is not None and hasattr(output, "out_features"):
        sizes["the head"] = output.out_features
    for part, size in sizes.items():
        if len(tokenizer) > size:
            raise ValueError(f"{place}: the tokenizer has {len(tokenizer)} tokens and {part} of the model only {size}")


def _read(kind: type, place: str | Path, **more):
    try:
        return kind.from_pretrained(place, **options(place), **more)
    except Exception as error:  # transformers, safetensors and json raise whatever they like
        what = f"{type(error).__name__}: {error}"
        if "trust_remote_code" in str(error):
            what = "it needs code of its own, and no code from a model's folder is executed"
        raise ValueError(f"{_broken(Path(place)) or place}: {what}") from error


def _broken(folder: Path) -> Path | None:
    """The first file of weights in a folder that cannot be opened."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except Exception:  # noqa: BLE001 (whatever is wrong with it)
            return file
    return None
