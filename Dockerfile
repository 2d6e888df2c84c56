# The command line in an image: docker build -t cohort . (without an engine: make image)
FROM debian:bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends make git ca-certificates
COPY . /src
WORKDIR /src
RUN make package

FROM debian:bookworm-slim
COPY --from=build /src/build/package/cohort_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates openssh-client /tmp/cohort_*.deb \
    && rm -rf /tmp/*.deb /var/lib/apt/lists/*
CMD ["cohort", "--help"]
