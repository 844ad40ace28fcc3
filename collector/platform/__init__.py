"""The platform's own view: its API is asked about endpoints, workers, releases and system logs.

Off unless `serve --platform` names a platform. `views` are its answers, `runpod` asks for them, `spans` makes records
of them (`platform.*`), `poller` is the loop. Another platform is a file beside `runpod`.
"""
