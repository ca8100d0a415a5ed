# CoreDNS: kubeadm gives it arguments only. The directory is where it looks for authorities.
FROM scratch
COPY --chmod=0755 --from=programs coredns /coredns
ENTRYPOINT ["/coredns"]
