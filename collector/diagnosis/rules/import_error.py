"""A Python module or name cannot be imported, and no native library is to blame (rule 6)."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="import_error",
    fault="dependency",
    retry="no",
    because="Python could not import [the module {module}][the name {name}][ from {origin}]",
    details=(
        Detail("module", r"No module named '?([\w.]+)'?"),
        Detail("name", r"cannot import name '?(\w+)'?"),
        Detail("origin", r"cannot import name '?\w+'? from (?:partially initialized module )?'?([\w.]+)'?"),
    ),
    advice=(
        "Install the package that provides {module} in the image, in the interpreter that runs "
        "the handler, and pin its version.",
        "Pin a version of {origin} that still has {name}, or update the code that asks for it.",
        "Do not retry: the image has to change.",
    ),
    signals=(
        Signal(
            r"No module named '?(?P<module>[\w.\-]+)",
            "Python's own message",
            (
                "ModuleNotFoundError: No module named 'library'",
                "ImportError: No module named 'flash_attn'",
                "/usr/bin/python3: No module named vllm.entrypoints",
            ),
            unless=r"\bWARN|Error caught was|Proceeding without|proceeding without|falling back|fall back|skipping"
            r"|optional|not installed, |\bINFO\b|disabled|will not be available"
            r"|Cannot import [^\n]{0,200} module for custom nodes",
        ),
        Signal(
            r"cannot import name '?(?P<name>\w+)'? from",
            "the module is there in another version",
            (
                "ImportError: cannot import name 'packaging' from 'pkg_resources' "
                "(/usr/lib/python3/dist-packages/pkg_resources.py)",
            ),
            unless=r"falling back|skipping|\bINFO\b|optional",
        ),
        Signal(
            r"No matching distribution found for (?P<module>[\w.\[\]-]+)"
            r"|Could not find a version that satisfies the requirement (?P<name>[\w.\[\]-]+)",
            "pip finds no such package, or none for this Python and platform",
            (
                "ERROR: Could not find a version that satisfies the requirement torch==2.1.2 (from versions: 2.5.0)",
                "ERROR: No matching distribution found for flash-attn",
            ),
            strength="likely",
            unless_near=r"newconnectionerror|failed to resolve|name resolution|connection broken by|read timed out",
            says="a package could not be installed[: {module}][: {name}]",
        ),
        Signal(
            r"ImportError: (?:Using|This modeling file requires|[\w.-]+ (?:is|are) required"
            r"|requires|Please (?:run )?(?:`)?(?:pip )?install|Missing optional dependency"
            r"|Unable to import)"
            r"|requires the [^\n]{1,60} (?:library|package)"
            r"|but it was not found in your environment|(?:package|module"
            r"|library) is not installed|PackageNotFoundError|DistributionNotFound"
            r"|pkg_resources\.(?:Contextual)?VersionConflict"
            r"|This modeling file requires the following packages|(?:please"
            r"|Please) (?:pip )?install (?:it|them|the package)? ?(?:via|with|using"
            r"|by)? ?[`'\"]?pip",
            "a library asks for a package that is absent",
            (
                "ImportError: This modeling file requires the following packages that were not "
                "found in your environment:"
                " flash_attn. Run `pip install flash_attn`",
                "ImportError: Using `bitsandbytes` 8-bit quantization requires Accelerate: `pip install accelerate`",
                "importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes",
            ),
            strength="likely",
            unless=r"\bWARN|\bINFO\b|falling back|UserWarning|optional",
            says="a Python package that the code needs is not installed",
            advice=("Install the package that the message names in the image, and pin its version.",),
        ),
        Signal(
            r"CalledProcessError: Command '[^\n]{0,200}models\.registry'[^\n]{0,40} returned non-zero",
            "the helper process that imports a model class failed; why is in its own output",
            (
                "subprocess.CalledProcessError: Command '['/usr/bin/python3', '-m', "
                "'vllm.model_executor.models.registry']'"
                " returned non-zero exit status 1.",
            ),
            strength="possible",
            tier=Tier.RESOURCE,
            says="the helper process that imports the model's class failed",
            advice=("Import the model's class by hand in the image: its own error names what is missing.",),
        ),
        Signal(
            r"^(?:[\w.]+\.)?ImportError: ",
            "Python's own exception, in words that no other line here knows",
            ("ImportError: attempted relative import with no known parent package",),
            Tier.HINT,
            strength="likely",
            unless=r"\.so\b|DLL|undefined symbol|GLIBC|shared object|numpy",
            says="a Python import failed",
            advice=("Check that the package and what it imports are installed in versions that fit each other.",),
        ),
        Signal(
            r"partially initialized module '?(?P<module>[\w.]+)'? has no attribute",
            "a circular import, or a file that hides a package of the same name",
            (
                "AttributeError: partially initialized module 'torch' has no attribute 'nn' "
                "(most likely due to a circular import)",
            ),
            strength="likely",
            says="importing {module} went in a circle, or a file of the same name hides it",
        ),
        Signal(
            r"AttributeError: (?:partially initialized )?module '(?P<module>[\w.]+)' has no "
            r"attribute '(?P<name>\w+)'|PydanticImportError",
            "a package of another version than the code expects, seen while it starts",
            ("AttributeError: module 'torch.library' has no attribute 'register_fake'",),
            Tier.LAST_RESORT,
            strength="possible",
            phases=("boot", "prestart"),
            says="a package is of another version than the code expects[: {module} has no {name}]",
            advice=("Pin versions of the packages that fit each other: the message names the one that differs.",),
        ),
        Signal(
            r"AttributeError: module 'numpy' has no attribute|ERR_MODULE_NOT_FOUND"
            r"",
            "a name that the installed version does not have",
            (
                "AttributeError: module 'numpy' has no attribute 'float'",
                "ERR_MODULE_NOT_FOUND: Cannot find package 'ws' imported from /app/i.mjs",
            ),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"needs NumPy [\d.]+ or (?:less|greater)|requires (?:numpy|torch|transformers|python)\W{0,3}[<>=]=? ?\d",
            "a package does not work with the version of another",
            ("ImportError: Numba needs NumPy 2.2 or less. Got NumPy 2.3.",),
            strength="likely",
            unless=r"\bINFO\b|\bWARN",
        ),
    ),
)
