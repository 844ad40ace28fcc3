# The server: collector, dashboard and command line.  docker build -t stallscope .
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# What others wrote comes first: it changes seldom, and its layer is kept.
COPY docker/requirements.txt docker/
RUN python -m venv --without-pip /opt/stallscope \
    && pip --python /opt/stallscope/bin/python install --no-deps -r docker/requirements.txt \
    && pip install hatchling==1.33.0
COPY pyproject.toml README.md LICENSE ./
COPY sdk_exporter sdk_exporter
COPY collector collector
COPY dashboard dashboard
COPY migrations migrations
COPY docs/runbooks docs/runbooks
# Without resolving anything: what is missing in the list above is an error here, and never a surprise.
RUN pip --python /opt/stallscope/bin/python install --no-deps --no-build-isolation ./sdk_exporter . \
    && pip --python /opt/stallscope/bin/python check

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="Stallscope" \
      org.opencontainers.image.description="Why did this GPU request fail or stall?" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/stallscope/stallscope"
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini=0.19.0-* \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 stallscope \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin stallscope
COPY --from=build /opt/stallscope /opt/stallscope
ENV PATH=/opt/stallscope/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 10001:10001
EXPOSE 4318 4317
STOPSIGNAL SIGTERM
# The process is up; whether it is ready for traffic is asked at /readyz. With TLS, give a check of your own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:4318/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--", "stallscope"]
CMD ["serve", "--host", "0.0.0.0"]
