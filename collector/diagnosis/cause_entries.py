"""The catalogue of cause codes: what each means, in words for sentences and docs.

How a cause is recognised, whose fault it usually is and whether a retry helps is said once, by its rule (`rules/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collector.diagnosis.answer import Fault, Retry
from collector.diagnosis.rules import RULE_OF


@dataclass(frozen=True, slots=True)
class CauseEntry:
    """One cause code: why. `did` completes the sentence "it …"."""

    code: str
    title: str
    did: str
    meaning: str
    fault: Fault
    retry: Retry
    advice: tuple[str, ...]


_NO_RULE: Final[dict[str, tuple[Fault, Retry]]] = {"unknown": ("unknown", "maybe"), "no_failure": ("unknown", "no")}


def _cause(code: str, title: str, did: str, meaning: str, advice: tuple[str, ...]) -> CauseEntry:
    rule = RULE_OF.get(code)
    fault, retry = (rule.fault, rule.retry) if rule else _NO_RULE[code]
    return CauseEntry(code, title, did, meaning, fault, retry, advice)


_ENTRIES: Final = (
    _cause(
        "cuda_oom",
        "Out of GPU memory",
        "ran out of GPU memory",
        "A device memory request could not be met.",
        ("Use a GPU with more memory, a smaller or quantised model, or a smaller batch.",),
    ),
    _cause(
        "kv_cache_no_room",
        "No room for the key/value cache",
        "found no room for the key/value cache that the configuration asks for",
        "Weights fit, but what is left cannot hold the key/value cache that the configuration asks for.",
        ("Lower the maximum model length, or raise the share of GPU memory that the engine may use.",),
    ),
    _cause(
        "cuda_error",
        "CUDA call failed",
        "had a CUDA call fail",
        "A kernel or runtime call failed on a working, supported card.",
        ("Run once with `CUDA_LAUNCH_BLOCKING=1` to see the call that fails.",),
    ),
    _cause(
        "gpu_arch_unsupported",
        "GPU not supported by the build",
        "met a GPU that its build does not support",
        "The build has no code for this card, or the card lacks a needed feature.",
        ("Use an image built for this GPU's architecture, or choose another GPU type.",),
    ),
    _cause(
        "gpu_driver_mismatch",
        "Driver and CUDA do not fit",
        "found that driver and CUDA libraries do not fit each other",
        "Host driver, container CUDA and user-mode libraries do not fit each other.",
        ("Filter hosts by CUDA version, or use an image with an older CUDA.",),
    ),
    _cause(
        "gpu_unavailable",
        "No GPU visible",
        "found no usable GPU",
        "No usable device is visible to the process.",
        ("Try another host; check that the image does not hide the devices.",),
    ),
    _cause(
        "gpu_hardware_fault",
        "GPU hardware fault",
        "met a hardware fault of the GPU",
        "The card or its link is broken.",
        ("Send the request again on another host, and report this one.",),
    ),
    _cause(
        "nccl_error",
        "GPU-to-GPU communication failed",
        "had communication between GPUs fail",
        "Collective communication failed or timed out with the cards themselves healthy.",
        ("Run once with `NCCL_DEBUG=INFO`; check that each rank has its own GPU.",),
    ),
    _cause(
        "host_oom",
        "Out of main memory",
        "ran out of main memory",
        "Main memory ran out: the kernel's or the container's killer, or a framework's own guard.",
        ("Use a machine with more memory, or load the model without a second copy in main memory.",),
    ),
    _cause(
        "shm_exhausted",
        "Shared memory too small",
        "ran out of shared memory (/dev/shm)",
        "`/dev/shm` is too small.",
        ("Raise the container's shared memory, or use fewer data loader processes.",),
    ),
    _cause(
        "disk_full",
        "Disk full",
        "found no space left on the disk",
        "A write found no space or quota.",
        ("Give the worker a larger disk, or keep weights on a volume.",),
    ),
    _cause(
        "native_crash",
        "Native code crashed",
        "crashed in native code",
        "Native code died by signal or heap check and nothing more specific explains it.",
        ("Pin the version of the native library that last worked.",),
    ),
    _cause(
        "port_in_use",
        "Port in use",
        "found its port in use",
        "A listen address is taken.",
        ("Choose another port, or end the process that an earlier start left behind.",),
    ),
    _cause(
        "gated_model_auth",
        "Model access refused",
        "was refused access to the model",
        "The hub refuses the credentials: gated, private, or a bad token.",
        ("Accept the model's terms with the account of the token, and set `HF_TOKEN`.",),
    ),
    _cause(
        "model_not_found",
        "Model not found",
        "did not find the model",
        "Model, revision, file or local path does not exist where the program looks.",
        ("Check the model's name, revision and path.",),
    ),
    _cause(
        "hub_unavailable",
        "Model hub unavailable",
        "was turned away by the model hub",
        "The hub answers but does not serve: throttled (429) or failing (5xx).",
        ("Keep weights in the image or on a volume, so that a start does not depend on the hub.",),
    ),
    _cause(
        "network_unreachable",
        "Network unreachable",
        "could not reach an outside service",
        "Names or routes to an outside service fail.",
        ("Send the request again; if it stays, check name resolution on the worker.",),
    ),
    _cause(
        "model_corrupt",
        "Model file damaged",
        "found a damaged model file",
        "A file is there but incomplete or damaged.",
        ("Delete the cached file and download it again.",),
    ),
    _cause(
        "model_unsupported",
        "Model not supported by this version",
        "met a model that this software version cannot load",
        "A sound model that this software version cannot load.",
        ("Upgrade the inference library, or choose a model that it supports.",),
    ),
    _cause(
        "import_error",
        "Python module missing",
        "could not import a Python module",
        "A Python module or name cannot be imported, and no native library is to blame.",
        ("Add the package to the image, in the version that the code expects.",),
    ),
    _cause(
        "native_lib_error",
        "Native library missing or unfit",
        "found a native library missing or of the wrong version",
        "A shared library or binary extension is missing or does not match.",
        ("Install builds that match each other (Python, PyTorch, CUDA, C library).",),
    ),
    _cause(
        "missing_component",
        "Component missing",
        "missed a tool that it needs",
        "A tool, plug-in or mounted application that the code needs is not there.",
        ("Install the named tool or plug-in in the image.",),
    ),
    _cause(
        "config_invalid",
        "Configuration invalid",
        "refused its configuration",
        "A setting, flag or environment variable is missing, unknown or contradictory.",
        ("Correct the named setting.",),
    ),
    _cause(
        "image_start_failed",
        "Image cannot start",
        "could not be started from its image",
        "The image cannot be pulled or its entry point cannot be run.",
        ("Check the image's name, platform and entry point.",),
    ),
    _cause(
        "handler_exception",
        "Error in the code",
        "raised an exception",
        "Application code, or a library it calls, raised an error that no other code explains.",
        ("Fix the code where the traceback points.",),
    ),
    _cause(
        "input_invalid",
        "Input refused",
        "refused the request's input",
        "The caller's input is refused or cannot be read.",
        ("Correct the input.",),
    ),
    _cause(
        "payload_too_large",
        "Payload too large",
        "met a size limit",
        "A request or result is over a size limit.",
        ("Pass large data as a link to storage, not in the request or the result.",),
    ),
    _cause(
        "output_not_serializable",
        "Result cannot be encoded",
        "returned something that cannot be encoded as JSON",
        "The result cannot be encoded.",
        ("Return plain JSON: dicts, lists, strings, finite numbers. Encode bytes and arrays yourself.",),
    ),
    _cause(
        "sidecar_unreachable",
        "Local server unreachable",
        "could not reach the local server that it depends on",
        "A local server that the handler depends on is not up, not ready or has gone.",
        ("Wait for the local server in a prestart hook, and watch that it stays up.",),
    ),
    _cause(
        "storage_upload_failed",
        "Upload failed",
        "could not write the result to storage",
        "Writing the result to object storage failed.",
        ("Check the storage credentials and permissions.",),
    ),
    _cause(
        "timeout",
        "Time limit expired",
        "ran into a time limit",
        "A time limit on work in progress expired.",
        ("Raise the limit, or find what the work waited for.",),
    ),
    _cause(
        "request_cancelled",
        "Cancelled",
        "was cancelled from outside",
        "Caller or operator ended the request.",
        (),
    ),
    _cause(
        "capacity_unavailable",
        "No machine available",
        "found no machine of the kind asked for",
        "No machine of the kind asked for, or a worker limit of zero.",
        ("Allow more GPU types or regions, or raise the maximum of workers.",),
    ),
    _cause(
        "terminated_by_platform",
        "Taken away by the platform",
        "was ended by the platform",
        "The host or the platform took the worker away.",
        ("Use machines that are not reclaimed for long requests, and let workers drain.",),
    ),
    _cause(
        "platform_api_error",
        "Call to the platform failed",
        "had a call to the platform fail",
        "A call between worker and platform failed or was lost.",
        ("Send the request again; if it stays, check the worker's network and the platform's status.",),
    ),
    _cause(
        "unknown",
        "Not known",
        "failed",
        "The evidence does not hold the cause.",
        (),
    ),
    _cause(
        "no_failure",
        "No failure",
        "did not fail",
        "Nothing failed; lines that look like errors were harmless.",
        (),
    ),
)

CAUSES: Final = {entry.code: entry for entry in _ENTRIES}
