# The container that holds a Pod's namespaces.
FROM scratch
COPY --chmod=0755 --from=programs pause /pause
USER 65535:65535
ENTRYPOINT ["/pause"]
