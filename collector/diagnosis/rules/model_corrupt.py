"""A model file is there and incomplete or damaged."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="model_corrupt",
    fault="model_config",
    retry="maybe",
    because="a model file is incomplete or damaged[: {file}]",
    details=(Detail("file", r"([\w./-]{1,120}\.(?:safetensors|ckpt|pth?|bin|gguf|onnx|engine|json|model))\b"),),
    advice=(
        "Delete {file} and download it again; compare its size with the hub's.",
        "Delete the model's folder in the cache and download it again: an interrupted download "
        "or a Git LFS pointer looks like this.",
        "Do not let two workers download into the same folder at once.",
    ),
    missing=(Missing("which file it stopped at", "TRANSFORMERS_VERBOSITY=debug"),),
    quotes=True,
    signals=(
        Signal(
            r"MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeaderDeserialization"
            r"|InvalidHeaderLength|HeaderTooSmall|InvalidHeaderStart|InvalidHeader\b"
            r"|error while deserializing header|TensorInvalidInfo|InvalidOffset"
            r"|SafetensorError: (?!.{0,60}(?:serializ|File does not contain|framework))",
            "the header of a safetensors file is cut or is not one",
            (
                "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
                "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
                "Error: SafetensorError: InvalidHeaderDeserialization",
            ),
        ),
        Signal(
            r"failed finding central directory|PytorchStreamReader failed|not a ZIP archive"
            r"|invalid header or archive is corrupted|unexpected EOF, expected \d+ more bytes"
            r"|corrupted (?:file|checkpoint|archive|model)|BadZipFile|Bad magic number"
            r"|Ran out of input|archive is corrupted"
            r"|storage has wrong (?:byte )?size|EOFError: Ran out of input|invalid load key|pickle data was truncated"
            r"|could not find MARK|Compressed file ended before|zlib\.error"
            r"|Error -3 while decompressing|gzip\.BadGzipFile",
            "the archive that a torch checkpoint is was cut or overwritten",
            (
                "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
                "_pickle.UnpicklingError: invalid load key, 'v'.",
                "EOFError: Ran out of input",
                "RuntimeError: unexpected EOF, expected 1234 more bytes. The file might be corrupted.",
                "zipfile.BadZipFile: File is not a zip file",
            ),
            unless=(
                r"weights_only|Weights only load failed|Unsupported (?:class|global|operand)"
                r"|multiprocessing|BrokenPipe"
            ),
            unless_near=(
                r"weights only load failed|forkingpickler|multiprocessing/(?:spawn|connection"
                r"|reduction)|resource_sharer"
            ),
        ),
        Signal(
            r"(?:sha-?256|checksum|digest|(?:file|blob|model|weights?|etag|download) hash"
            r"|(?:file|blob|download(?:ed)?|content)[ _-]?size)\b[^\n]{0,40}"
            r"(?:mismatch|does(?:n't"
            r"| not| not not) match|verification failed|failed verification)|(?:mismatch"
            r"|verification)[^\n]{0,30}(?:sha-?256|checksum)\b|file (?:is|may be|might be"
            r"|appears to be|seems to be) (?:corrupt|truncated|incomplete|damaged)|(?:corrupt"
            r"|truncated|incomplete|damaged) (?:model|weights?|safetensors|checkpoint|gguf) ?file"
            r"|Consistency check failed|tensor data is not within (?:the )?file bounds"
            r"|tensor '[^'\n]{1,100}' data is not within the file|model is corrupted or incomplete"
            r"|invalid magic (?:characters|number)|(?:bad|wrong) magic"
            r"|unexpectedly reached end of file|failed to read (?:magic|tensor|header)",
            "a check of size, digest or magic number failed",
            (
                "OSError: Consistency check failed: file should be of size 4976698672 but has size 1048576",
                "gguf_init_from_file: invalid magic characters 'vers'",
                "llama_model_load: error loading model: tensor 'blk.20.ffn_down.weight' data is "
                "not within the file bounds, model is"
                " corrupted or incomplete",
                "Error: digest mismatch, file must be downloaded again",
            ),
            unless=(
                r"docker|image layer|image file|video|invalid ggml type|size mismatch for|shape|dtype size|error while"
                r"|dimension"
            ),
        ),
        Signal(
            r"(?:Unable to load weights from (?:pytorch )?checkpoint"
            r"|a repository without having git-lfs|version https://git-lfs\.github\.com"
            r"|INVALID_PROTOBUF|Protobuf parsing failed|InvalidProtobuf|Error parsing message"
            r"|Deserialize[^\n]{0,30}onnx[^\n]{0,30}failed"
            r"|Unable to (?:synchronously )?open file[^\n]{0,60}(?:truncated|signature not found)"
            r"|file signature not found|truncated file)",
            "what lies there is no model file",
            (
                "OSError: Unable to load weights from pytorch checkpoint file for 'x' at '/m/pytorch_model.bin'.",
                "OSError: You seem to have cloned a repository without having git-lfs installed.",
                "onnxruntime.capi.onnxruntime_pybind11_state.InvalidProtobuf: [ONNXRuntimeError] "
                ": 7 : INVALID_PROTOBUF : Load model"
                " from m.onnx failed:Protobuf parsing failed.",
            ),
            strength="likely",
        ),
        Signal(
            r"(?:json\.decoder\.)?JSONDecodeError|UnicodeDecodeError"
            r"|It looks like the config file at '[^'\n]{1,200}' is not a valid JSON",
            "a settings file of the model cannot be read",
            ("OSError: It looks like the config file at '/models/x/config.json' is not a valid JSON file.",),
            Tier.HINT,
            strength="possible",
            near=(
                r"it looks like the config file|configuration_utils\.py|tokenization_utils|index\.json"
                r"|safetensors\.index|_get_config_dict|load_tokenizer"
            ),
        ),
        Signal(
            r"\b(?:corrupt(?:ed)?|truncated|damaged|malformed)\b",
            "an error that says damaged",
            ("RuntimeError: file is truncated", "OSError: the archive seems to be damaged"),
            Tier.LAST_RESORT,
            strength="possible",
            errors_only=True,
            unless=r"image|JSON|request|size vs|unsorted|double-linked",
        ),
        Signal(
            r"tarfile\.ReadError|UnpicklingError: (?!Only |Can only |unsafe|Forbidden|Cannot)"
            r"|gzip: \S{1,80} unexpected end of file|could not parse ModelProto"
            r"|Unexpected end of input|premature end$|Read error \(39\)",
            "an archive or a tokenizer file ends early or cannot be read",
            (
                "tarfile.ReadError: unexpected end of data",
                "gzip: stdin: unexpected end of file",
                "RuntimeError: Internal: could not parse ModelProto from tokenizer.model",
                "xz: (stdin): Unexpected end of input",
                "zstd: /*stdin*\\ : Read error (39) : premature end",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"JSON|json|yaml|SyntaxError|caller|upload",
        ),
    ),
)
