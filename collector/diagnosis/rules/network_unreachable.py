"""Names or routes to an outside service fail."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="network_unreachable",
    fault="platform",
    retry="yes",
    because="the network could not be reached[: {host} does not answer or has no address]",
    details=(
        Detail(
            "host",
            r"host='?([\w.-]{3,100})|failed to resolve '([^']{3,100})'"
            r"|could not resolve host:? '?([\w.-]{3,100})|connect to '?https?://([\w.-]{3,100})"
            r"|lookup ([\w.-]{3,100})",
        ),
    ),
    advice=(
        "Retry, on another host if it fails again.",
        "Check that the worker may reach {host}: name server, proxy (HTTPS_PROXY), firewall.",
        "Put what is fetched at start into the image or the network volume, and set HF_HUB_OFFLINE=1.",
    ),
    missing=(Missing("what was asked of the network and answered", "HF_HUB_VERBOSITY=debug"),),
    signals=(
        Signal(
            r"Failed to resolve (?:(?:the )?(?:host(?:name)?|address|domain|name)\b|https?://|'[\w-]+(?:\.[\w-]+)*'"
            r"|\"|[\w-]+(?:\.[\w-]+)+)|Temporary failure in name resolution|Name or service not known"
            r"|nodename nor servname|getaddrinfo failed|NameResolutionError|Could(?: not"
            r"|n't) resolve host|Name does not resolve|No address associated with hostname"
            r"|Temporary failure resolving|server misbehaving|dial tcp: lookup|no such host"
            r"|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|failed to lookup address information|dns error"
            r"|EAI_AGAIN|Unable to resolve host|Could not contact DNS servers|NXDOMAIN"
            r"|unable to look up",
            "a name has no address",
            (
                "socket.gaierror: [Errno -3] Temporary failure in name resolution",
                "urllib3.exceptions.NameResolutionError: Failed to resolve 'huggingface.co' "
                "([Errno -2] Name or service not known)",
                "curl: (6) Could not resolve host: huggingface.co",
                "dial tcp: lookup registry-1.docker.io on 10.0.0.2:53: no such host",
                "error sending request: dns error: failed to lookup address information: Try again",
                "Error: getaddrinfo ENOTFOUND api.runpod.ai",
            ),
            unless=r"\bHOSTNAME\b|hostname: Name|cannot set (?:up )?hostname|Failed to pull|ErrImagePull|sudo: unable",
        ),
        Signal(
            r"Network is unreachable|Errno 101\b|ENETUNREACH|No route to host|Errno 113\b"
            r"|EHOSTUNREACH|os error 101|os error 113|Network is down|Host is unreachable",
            "there is no route",
            (
                "OSError: [Errno 101] Network is unreachable",
                "connect to host huggingface.co port 443: No route to host",
            ),
            unless=r"RAS|NCCL|127\.0\.0\.1",
        ),
        Signal(
            r"name oder (?:der )?Dienst (?:ist )?nicht bekannt"
            r"|Temporärer Fehler bei der Namensauflösung|nom ou service inconnu"
            r"|[ÉE]chec temporaire dans la résolution|nombre o servicio desconocido"
            r"|Fallo temporal en la resolución|未知的名称或服务|域名解析(?:暂时失败|出现暂时性错误)"
            r"|名前(?:解決に(?:一時的に)?失敗|またはサービスが不明)|nome ou serviço desconhecido"
            r"|Falha temporária na resolução|Netzwerk ist nicht erreichbar"
            r"|réseau n'est pas accessible|la red es inaccesible|网络不可达|网络连接失败|ネットワークに届きません"
            r"|rede está fora de alcance|Временный сбой в разрешении|Имя или служба не известны"
            r"|Rete non raggiungibile|名称解析失败",
            "the same in other languages",
            (
                "socket.gaierror: [Errno -3] Temporärer Fehler bei der Namensauflösung",
                "socket.gaierror: [Errno -2] 未知的名称或服务",
                "OSError: [Errno 101] 网络不可达",
            ),
        ),
        Signal(
            r"Max retries exceeded with url|NewConnectionError|ConnectTimeoutError"
            r"|Failed to establish a new connection|Cannot connect to host|ClientConnectorError"
            r"|ClientConnectorDNSError|httpx\.ConnectError|httpcore\.ConnectError"
            r"|error trying to connect|SSLError|CERTIFICATE_VERIFY_FAILED|SSLEOFError"
            r"|ProxyError|Tunnel connection failed|(?<!110: )Connection timed out|Errno 110\b"
            r""
            r"|EndpointConnectionError|Could not connect to the endpoint URL",
            "a connection to an outside service cannot be made",
            (
                "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', "
                "port=443): Max retries exceeded"
                " with url: /api/models/x (Caused by NewConnectionError('Failed to establish a "
                "new connection: [Errno 111] Connection"
                " refused'))",
                "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host example.org:443 ssl:default",
                "requests.exceptions.SSLError: HTTPSConnectionPool(host='huggingface.co', "
                "port=443): Max retries exceeded with url: /x"
                " (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')))",
            ),
            Tier.HINT,
            strength="likely",
            unless=(
                r"ConnectError: \[Errno 111\]"
                r"|127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1\]|host\.docker\.internal|RAS|NCCL|429"
                r"|TCPStore|Read timed out|ResponseError\('too many 50|closing transport|job-(?:take"
                r"|done)|Error while getting job|\.s3[.-]|s3\.amazonaws"
            ),
            unless_near=r"putobject|upload_file|upload_fileobj",
        ),
        Signal(
            r"We couldn't connect to 'https|Please check your connection and try again"
            r"|check(?:out)? your internet connection"
            r"|Connection error, and we cannot find the requested files"
            r"|An error happened while trying to locate the file(?:s)? on the Hub"
            r"|There was a problem when trying to (?:load|write|connect)"
            r"|(?:no|without) internet (?:connection|access)|unable to (?:connect"
            r"|reach) (?:to )?(?:the )?(?:hub|internet|huggingface)",
            "the hub client gives up on the network; why stands before it, if anywhere",
            (
                "OSError: We couldn't connect to 'https://huggingface.co' to load this file, "
                "couldn't find it in the cached files",
                "huggingface_hub.utils._errors.LocalEntryNotFoundError: An error happened while "
                "trying to locate the file on the Hub"
                " and we cannot find the requested files in the local cache.",
            ),
            Tier.HINT,
            strength="likely",
            unless_near=r"429 client error|too many requests|401 client error|403 client error|gated",
        ),
        Signal(
            r"ConnectionResetError|Connection reset by peer|RemoteDisconnected|Connection aborted|Connection broken",
            "a connection to an outside service broke off",
            ("requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'reset'))",),
            Tier.HINT,
            strength="possible",
            near=r"https?://(?!127|localhost|0\.0)|port=443|:443|host='|hf_hub_download|snapshot_download|\.amazonaws\.com",
            near_lines=6,
            unless=r"127\.0\.0\.1|localhost|NCCL|TCPStore|closing transport|getting job|job-(?:take|done)",
            unless_near=r"putobject|upload_file|upload_fileobj",
        ),
        Signal(
            r"Network connectivity (?:check )?failed|NoBrokersAvailable|ServerSelectionTimeoutError"
            r"|all brokers (?:are )?down",
            "the worker's own fitness check, or a client that finds none of its servers",
            (
                "kafka.errors.NoBrokersAvailable: NoBrokersAvailable",
                "pymongo.errors.ServerSelectionTimeoutError: db:27017: timed out",
                "RuntimeError: Network connectivity failed: Timeout connecting to 8.8.8.8:53 (5s)",
            ),
        ),
        Signal(
            r"Failed to connect to (?!localhost|127\.|0\.0\.0\.0)\S{4,80} port 443"
            r"|Recv failure: Connection reset|SSL certificate problem|dial tcp \d[\d.]+:443: (?:i/o ti"
            r"meout|connect: connection refused)|TLS handshake timeout|timed out connecting to https"
            r"|Could not resolve hostname|UnknownHostException|name resolver error"
            r"|DNS resolution failed|C-ares status|Could not find a suitable TLS CA certificate",
            "names, routes or certificates of an outside service",
            (
                "curl: (7) Failed to connect to huggingface.co port 443 after 130 ms: Couldn't connect to server",
                "curl: (60) SSL certificate problem: unable to get local issuer certificate",
                "dial tcp 104.18.1.1:443: i/o timeout",
                "net/http: TLS handshake timeout",
                "ssh: Could not resolve hostname github.com: Name or service not known",
                "java.net.UnknownHostException: huggingface.co",
                "DNS resolution failed for api.example.com:443: C-ares status is not ARES_SUCCESS",
                "httpx.ConnectTimeout: timed out connecting to https://huggingface.co",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"runpod|127\.0\.0\.1|localhost",
        ),
    ),
)
