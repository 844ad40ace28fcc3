"""A write found no space or quota."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="disk_full",
    fault="model_config",
    retry="no",
    because="the disk is full[: {expected} were needed][ at {path}][, {free} were free]",
    details=(
        Detail("expected", r"expected file size is: ([\d.]+ ?[KMGT]?i?B)"),
        Detail("free", r"only has ([\d.]+ ?[KMGT]?i?B) free"),
        Detail(
            "path",
            r"target location (/\S{1,120}) only|(?:write|open|copy_file_range|mkdir|device:) '?(/[^\s:']{1,140})",
        ),
    ),
    advice=(
        "Give the container a larger disk, or put caches on the network volume: set HF_HOME and "
        "TMPDIR to a path on it.",
        "Clear old model versions from the volume; a download needs room for the file twice "
        "while it is moved into place.",
    ),
    signals=(
        Signal(
            r"No space left on device|Errno 28\b|\bENOSPC\b|StorageFull|errno: 28\b|os error 28"
            r"|not enough space on the disk|WinError 112|insufficient disk space"
            r"|insufficient space"
            r"|disk (?:is )?full|database or disk is full|no space left|out of disk space"
            r"|Not enough disk space|Low disk space|No free space left|ran out of (?:disk )?space",
            "the operating system's own message",
            (
                "OSError: [Errno 28] No space left on device",
                "Error: write /ollama/models/blobs/sha256-00e1: no space left on device",
                "RuntimeError: Data processing error: CAS service error : IO Error: No space "
                "left on device (os error 28)",
                "RuntimeError: [enforce fail at inline_container.cc:424] . PytorchStreamWriter "
                "failed writing file data/0: file write"
                " failed: No space left on device",
                "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: "
                "28, kind: StorageFull })",
            ),
            Tier.RESOURCE,
            unless=r"dev/shm|shm-size|</torch_|shared memory|'/?(?:psm|wnsm|torch|sem)[._-]\w",
        ),
        Signal(
            r"Not enough free disk space to download|only has [\d.]+ ?[KMGT]?i?B free disk space",
            "the hub client warns before it fails",
            (
                "UserWarning: Not enough free disk space to download the file. The expected file "
                "size is: 3945.44 MB. The target"
                " location /root/.cache only has 3421.60 MB free disk space.",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"Disk quota exceeded|Errno 122\b|\bEDQUOT\b|quota (?:is )?exceeded[^\n]{0,40}(?:disk"
            r"|volume|storage)|os error 122|(?:disk|storage|volume|inode) quota",
            "a quota counts like a full disk",
            ("OSError: [Errno 122] Disk quota exceeded",),
            Tier.RESOURCE,
        ),
        Signal(
            r"kein Speicherplatz mehr|Aucun espace disponible sur le périphérique"
            r"|plus d'espace disponible|No queda espacio en el dispositivo|设备上没有空间|磁盘空间不足|磁盘已满"
            r"|デバイスに空き領域がありません"
            r"|Não há espaço (?:disponível )?no dispositivo|Spazio esaurito sul"
            r"|на устройстве не осталось|Brak miejsca na urządzeniu|장치에 남은 공간이 없음"
            r"|Geen ruimte meer over",
            "the operating system's message in other languages",
            (
                "OSError: [Errno 28] Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
                "cp: error writing: 设备上没有空间",
                "tee: /data/log: No queda espacio en el dispositivo",
            ),
            Tier.RESOURCE,
            unless=r"dev/shm",
        ),
        Signal(
            r"\bephemeral[- ]storage\b[^\n]{0,80}(?:exceed|evict|limit)"
            r"|The node was low on resource: ephemeral-storage|DiskPressure|file write failed"
            r"|PytorchStreamWriter failed writing"
            r"|unexpected pos \d+ vs \d+|Disk I/O error[^\n]{0,20}full",
            "a write broke off, or the node ran out of scratch space",
            (
                "The node was low on resource: ephemeral-storage. Threshold quantity: 1, available: 0.",
                "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 128 vs 22",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"DiskPressure:NoSchedule|had untolerated taint",
        ),
        Signal(
            r"curl:? \(?23\)? (?:Failure writing output|Failed writing body)"
            r"|ephemeral local storage usage exceeds|ephemeral-storage usage exceeds",
            "a download or a pod had no room left to write",
            (
                "curl: (23) Failure writing output to destination",
                "Pod ephemeral local storage usage exceeds the total limit of containers 20Gi.",
            ),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"Input/output error: '|Errno 5\b|Stale file handle|Transport endpoint is not connected",
            "the volume does not answer as a disk should; a full one does so too",
            (
                "OSError: [Errno 5] Input/output error: '/runpod-volume/x'",
                "OSError: [Errno 116] Stale file handle: '/runpod-volume/x'",
            ),
            Tier.HINT,
            strength="possible",
            says="the volume could not be read or written",
            fault="platform",
            retry="maybe",
        ),
    ),
)
