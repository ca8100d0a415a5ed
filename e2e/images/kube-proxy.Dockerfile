# kube-proxy with iptables and its libraries.
FROM scratch
ADD rootfs.tar /
COPY --chmod=0755 --from=programs kube-proxy /usr/local/bin/kube-proxy
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
