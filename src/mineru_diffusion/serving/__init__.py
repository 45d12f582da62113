"""The HTTP server: OpenAI's chat completions, document parsing with jobs, and MinerU's parse routes over one engine.

In: HTTP requests. Out: requests to one engine, which a thread of its own drives (`worker`). Nothing here loads torch.
"""
