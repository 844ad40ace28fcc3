"""A tool, plug-in or mounted application that the code needs is not there."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

_TOOLS = (
    r"(?:ffmpeg|ffprobe|git|git-lfs|nvcc|ninja|wget|curl|aria2c?|node|npm|java|espeak(?:-ng)?|sox|tesseract|blender"
    r"|Xvfb|xvfb-run|chromium|unzip|7z|redis-server|nginx|poppler|pdftoppm|soffice|convert|magick|rclone|aws|gcc|g\+\+"
    r"|cmake|make|ollama|llama-server|exiftool|mediainfo|yt-dlp|tini|dumb-init|conda|pip|uv)"
)

RULE = Rule(
    code="missing_component",
    fault="dependency",
    retry="no",
    because="a program, plug-in or mounted file that the code needs is not there[: {name}]",
    details=(
        Detail(
            "name",
            r"No such file or directory: '([\w.+-]{1,60})'"
            r"|([\w./+-]{1,100}): (?:command )?not found"
            r"|node(?: type)? '?([\w |.+()-]{1,80}?)'? (?:does not exist|not found)",
        ),
        Detail("name", r"(/[\w./-]{2,140}): No such file|\(IMPORT FAILED\):? (\S{1,140})"),
    ),
    advice=(
        "Install {name} in the image, and check that it is on the PATH of the process.",
        "Where it should come from a volume: check that the volume is mounted and was set up.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"(?:No such file or directory|Datei oder Verzeichnis nicht gefunden"
            r"|Aucun fichier ou dossier de ce type|No existe el (?:fichero"
            r"|archivo) o el directorio|没有那个文件或目录|そのようなファイルやディレクトリはありません"
            r"|Arquivo ou diretório (?:inexistente|não encontrado)):?"
            r" (?:[`'\"](?P<name>[A-Za-z][\w+-]{1,40})[`'\"]|(?P<bare>[A-Za-z][\w+-]{1,40})$)",
            "the name of a program alone: it was to be run (rule 10)",
            (
                "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
                "RuntimeError: Failed to load audio: [Errno 2] No such file or directory: 'ffprobe'",
            ),
            unless=r"py-spy|nvidia-smi|git_hash|directory: unknown|container_linux|runc",
        ),
        Signal(
            r"(?:ffmpeg|ffprobe|espeak|tesseract|sox|git-lfs|poppler|nvcc|cmake|chromedriver"
            r"|java)\b[^\n]{0,60}(?:not found|not installed|could(?: not|n't) (?:be )?(?:find"
            r"|found)|isn't installed|not in (?:your )?PATH|not available)|(?:not find|not found"
            r"|install) (?:the )?(?:ffmpeg|espeak|tesseract|poppler)\b"
            r"|No \S{1,40} executable found|(?:executable|binary|program"
            r"|command) \S{0,40}(?: was)? not found|TesseractNotFoundError"
            r"|PDFInfoNotInstalledError|Executable doesn't exist at|NoBackendError"
            r"|Couldn't find ffmpeg|Unable to locate[^\n]{0,20}(?:ffmpeg|executable)",
            "a library names the tool that it cannot find",
            (
                "RuntimeWarning: Couldn't find ffmpeg or avconv - defaulting to ffmpeg, but may not work",
                "pytesseract.pytesseract.TesseractNotFoundError: tesseract is not installed or it's not in your PATH.",
                "RuntimeError: espeak not installed on your system",
                "ImportError: ffmpeg is not installed",
            ),
            strength="likely",
            unless=r"defaulting to [^\n]{0,30}imageio|No module named|OCI runtime|exec: ",
        ),
        Signal(
            r"No such file or directory: '/(?:usr|opt|bin|sbin|root)[\w/.+-]{0,100}/s?bin/(?P<name>[\w.+-]{1,40})'",
            "a program at a fixed place that is not there",
            ("FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",),
            strength="likely",
            unless=r"nvidia-smi|py-spy",
        ),
        Signal(
            r"Failed to find C compiler|nvcc (?:was )?not found|Could not find nvcc|No (?:working )?C(?:\+\+)? compiler"
            r"|Ninja is required to load|CUDA_HOME environment variable is not set"
            r"|Cannot find (?:CUDA_HOME|nvcc|a compiler)"
            r"|compiler (?:not found|is not installed)",
            "code that is compiled when first used finds no compiler or toolkit",
            (
                "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
                "RuntimeError: Ninja is required to load C++ extensions",
                "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            ),
            strength="likely",
            unless=r"UserWarning|\bINFO\b|\bWARN",
            says="code that is compiled when first used finds no compiler",
            advice=("Install gcc, or the CUDA toolkit (a -devel base image), as the message asks.",),
        ),
        Signal(
            r"\(IMPORT FAILED\)|(?:because|Cannot execute)[^\n]{0,60}node \S[^\n]{0,80} does(?:n't"
            r"| not) exist|(?:missing|unknown|invalid|unsupported)_?(?: |-)?node[_ ]type"
            r"|When loading the graph, the following node types were not found"
            r"|Cannot import \S{1,200} module for custom nodes|node type [^\n]{1,80}not found"
            r"|NODE_CLASS_MAPPINGS\[|Node class not found|Custom node [^\n]{1,80}not (?:found"
            r"|installed)"
            r"|invalid prompt: \{'type': '(?:invalid_prompt|missing_node_type)'|missing_node_type",
            "a ComfyUI plug-in is not installed or did not load",
            (
                "   0.3 seconds (IMPORT FAILED): /ComfyUI/custom_nodes/ComfyUI-Foo",
                "Cannot execute because node UnetLoaderGGUF does not exist.",
                "Cannot import /ComfyUI/custom_nodes/foo module for custom nodes: No module named 'cv2'",
                "invalid prompt: {'type': 'missing_node_type', 'message': 'Node not found'}",
            ),
            says="a ComfyUI plug-in that the workflow needs is missing or did not load[: {name}]",
            advice=(
                "Install the plug-in with its requirements in the image: {name}.",
                "Start ComfyUI once by hand and read why the plug-in does not load.",
            ),
        ),
        Signal(
            r"(?:\.sh|bash|/bin/sh|sh|entrypoint)\S{0,30}: (?:line |Zeile |ligne |línea |行 ?"
            r"|第 ?)?\d+[^\n]{0,20}: (?P<name>/?[\w./+-]{1,140}): (?:No such file or directory"
            r"|Datei oder Verzeichnis nicht gefunden|Aucun fichier ou dossier"
            r"|No existe el (?:fichero|archivo)|没有那个文件或目录|そのようなファイル|Arquivo ou diretório)",
            "a start script's own file is missing: the application or its volume is not there",
            ("/start.sh: line 10: /workspace/venv/bin/activate: No such file or directory",),
            strength="likely",
            unless=r"py-spy|\.log:",
        ),
        Signal(
            r"(?:can't|cannot|could not) open (?:file"
            r"|script) '?(?P<name>[^'\n]{1,160})'?:? ?(?:\[Errno 2\]|No such file)"
            r"|cannot find module '(?:/|\.)|(?<!\w)Error: Cannot find module '|Unable to access jarfile"
            r"|(?:application|plugin|extension|volume|mount) [^\n]{0,80}(?:is )?(?:not (?:found"
            r"|installed|mounted)|missing$)",
            "the program to run is not in the image or on the volume",
            (
                "python: can't open file '/workspace/app/main.py': [Errno 2] No such file or directory",
                "Error: Cannot find module '/app/server.js'",
            ),
            strength="likely",
            unless=r"exec |OCI",
        ),
        Signal(
            _TOOLS
            + r": (?:not found|No such file|no se encontró)|command not found|commande introuvable|orden no encontrada"
            r"|未找到命令|找不到命令|Befehl nicht gefunden|Kommando nicht gefunden|コマンドが見つかりません"
            r"|comando não encontrado|comando non trovato",
            "a shell cannot find the program",
            (
                "/start.sh: line 3: aria2c: command not found",
                "bash: ffmpeg: Kommando nicht gefunden.",
                "sh: 1: ffmpeg: not found",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"py-spy|nvidia-smi|deactivate|libtcmalloc|not found, (?:skipping|using)",
        ),
        Signal(
            r"Did you mean to install|plugin [^\n]{1,60} (?:not found|is missing)|(?:Unable to"
            r"|cannot|Cannot) (?:find|load) (?:the )?(?:plugin|backend|extension|codec|encoder"
            r"|decoder)\b(?! start)|Unknown (?:encoder|decoder) '|(?<!text )(?<!condition )(?<!vision )(?:Encoder"
            r"|Decoder) (?:not found"
            r"|'?[a-z]\w{1,20}'? not found)|creator not found|getPluginCreator could not find plugin"
            r"|LookupError: [^\n]{0,60}Resource|Resource \S{0,20}punkt"
            r"|Can't find model '\w+_core_web",
            "a plug-in, codec or data package is missing",
            (
                "[TRT] [E] 3: getPluginCreator could not find plugin: SkipLayerNorm version: 1",
                "Unknown encoder 'libx264'",
                "OSError: [E050] Can't find model 'en_core_web_sm'. It doesn't seem to be a Python package",
            ),
            strength="likely",
        ),
        Signal(
            r"is not a git command|spawn [\w.-]{2,40} ENOENT",
            "a program that the worker calls is not installed",
            (
                "git: 'lfs' is not a git command. See 'git --help'.",
                "Error: spawn ffmpeg ENOENT",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"skipping|optional|WARN",
        ),
        Signal(
            r"executable not found in (?:the )?(?:\$?PATH|path)|Unable to locate package \S"
            r"|has no installation candidate",
            "a program is not installed, or the package that brings it does not exist",
            (
                "OSError: Error: wkhtmltopdf executable not found in PATH",
                "E: Unable to locate package libgl1-mesa-glx",
            ),
            strength="likely",
            unless=r"exec: |OCI|starting container",
        ),
    ),
)
