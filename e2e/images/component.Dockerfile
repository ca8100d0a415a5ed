# A component of Kubernetes: a program that needs nothing else.
FROM scratch
ARG PROGRAM
COPY --chmod=0755 --from=programs ${PROGRAM} /usr/local/bin/${PROGRAM}
ENV PATH=/usr/local/bin
