"""The Hugging Face hub: the token that gated models need, and models that are already here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.doctor.storage import hub_folder

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
OFFLINE = "HF_HUB_OFFLINE"
REMEDY = (
    "accept the model's licence on huggingface.co, create a token there, and export it as HF_TOKEN (or log in with "
    "`hf auth login`); a model on this machine needs no token: name its folder with --model-path DIR"
)


def token_source(environment: Mapping[str, str] = os.environ) -> str:
    """Return where the token comes from: a variable or a file; "" if there is none. The token itself is not kept."""
    named = next((name for name in TOKENS if environment.get(name, "").strip()), None)
    if named:
        return named
    home = Path(environment.get("HF_HOME") or hub_folder().parent)
    file = Path(environment.get("HF_TOKEN_PATH") or home / "token").expanduser()
    try:
        return str(file) if file.read_text().strip() else ""
    except OSError:
        return ""


def is_offline(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get(OFFLINE, "").strip().lower() in ("1", "true", "yes", "on")


def is_downloaded(model: str) -> bool:
    """Return whether a snapshot of a hub model is in the cache."""
    snapshots = hub_folder() / f"models--{model.replace('/', '--')}" / "snapshots"
    return next(snapshots.glob("*/*"), None) is not None


def check_hub(gated: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Finding:
    """Report whether gated models can be downloaded.

    Args:
        gated: hub ids of gated models by preset.
    """
    source, offline = token_source(environment), is_offline(environment)
    absent = sorted({model for model in gated.values() if not is_downloaded(model)})
    details = {"token": source, "offline": offline, "gated": dict(gated), "not_downloaded": absent}
    if source:
        return Finding(check="hub", status="ok", found=f"token from {source}", details=details)
    if not absent:
        return Finding(check="hub", status="ok", found="no token; no gated model lacks its weights", details=details)
    found = "offline, no token" if offline else "no token"
    return Finding(
        check="hub",
        status="warning",
        found=found,
        cause=f"HF_TOKEN is not set, and these models are gated and not downloaded: {', '.join(absent)}",
        remedy=REMEDY,
        details=details,
    )
