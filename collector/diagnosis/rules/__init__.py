"""The rules, one cause a file. A new cause is a file here, its entry below, and its cases.

The order says nothing about precedence: that is each signal's tier, then the order of the tail (`shape.Tier`).
"""

from __future__ import annotations

import re

from collector.diagnosis.rules import (
    capacity_unavailable,
    config_invalid,
    cuda_error,
    cuda_oom,
    disk_full,
    gated_model_auth,
    gpu_arch_unsupported,
    gpu_driver_mismatch,
    gpu_hardware_fault,
    gpu_unavailable,
    handler_exception,
    host_oom,
    hub_unavailable,
    image_start_failed,
    import_error,
    input_invalid,
    kv_cache_no_room,
    missing_component,
    model_corrupt,
    model_not_found,
    model_unsupported,
    native_crash,
    native_lib_error,
    nccl_error,
    network_unreachable,
    output_not_serializable,
    payload_too_large,
    platform_api_error,
    port_in_use,
    request_cancelled,
    shm_exhausted,
    sidecar_unreachable,
    storage_upload_failed,
    terminated_by_platform,
    timeout,
)
from collector.diagnosis.rules.needles import NeedleIndex
from collector.diagnosis.rules.shape import CompiledSignal, Rule, compile_signal

RULES: tuple[Rule, ...] = (
    cuda_oom.RULE,
    kv_cache_no_room.RULE,
    cuda_error.RULE,
    gpu_arch_unsupported.RULE,
    gpu_driver_mismatch.RULE,
    gpu_unavailable.RULE,
    gpu_hardware_fault.RULE,
    nccl_error.RULE,
    host_oom.RULE,
    shm_exhausted.RULE,
    disk_full.RULE,
    native_crash.RULE,
    port_in_use.RULE,
    gated_model_auth.RULE,
    model_not_found.RULE,
    hub_unavailable.RULE,
    network_unreachable.RULE,
    model_corrupt.RULE,
    model_unsupported.RULE,
    import_error.RULE,
    native_lib_error.RULE,
    missing_component.RULE,
    config_invalid.RULE,
    image_start_failed.RULE,
    handler_exception.RULE,
    input_invalid.RULE,
    payload_too_large.RULE,
    output_not_serializable.RULE,
    sidecar_unreachable.RULE,
    storage_upload_failed.RULE,
    timeout.RULE,
    request_cancelled.RULE,
    capacity_unavailable.RULE,
    terminated_by_platform.RULE,
    platform_api_error.RULE,
)

RULE_OF: dict[str, Rule] = {rule.code: rule for rule in RULES}

SIGNALS: tuple[CompiledSignal, ...] = tuple(compile_signal(rule, signal) for rule in RULES for signal in rule.signals)

INDEX = NeedleIndex(found.needles for found in SIGNALS)

DETAILS: dict[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    rule.code: tuple((detail.name, re.compile(detail.pattern, re.IGNORECASE)) for detail in rule.details)
    for rule in RULES
}
