# The runtime of the project's Dockerfile without a registry, like distroless' cc: what a program links to, and certificate
# authorities. It is of the builder's own Debian, so that glibc fits.
FROM scratch AS debian
ADD rootfs.tar /
RUN <<'EOF'
set -eu
libraries=$(dirname "$(find /usr/lib -name libc.so.6)")
mkdir -p "/out$libraries" /out/etc/ssl/certs /out/usr/lib /out/home/nonroot
for name in libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libnss_dns.so.2 libnss_files.so.2 libpthread.so.0 libresolv.so.2 librt.so.1; do
    cp -L "$libraries/$name" "/out$libraries/"
done
cp -L "$libraries"/ld-linux-*.so.* "/out$libraries/"
# The loader is found by its path in the program: /lib64 on amd64, /lib on arm64.
for loader in /usr/lib64/ld-linux-*.so.* /usr/lib/ld-linux-*.so.*; do
    if [ -e "$loader" ]; then cp -a --parents "$loader" /out/; fi
done
for link in lib lib64; do
    if [ -L "/$link" ]; then cp -a "/$link" /out/; fi
done
cp -L /etc/os-release /out/usr/lib/
ln -s ../usr/lib/os-release /out/etc/os-release
find /usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat >/out/etc/ssl/certs/ca-certificates.crt
printf 'hosts: files dns\n' >/out/etc/nsswitch.conf
printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >/out/etc/passwd
printf 'root:x:0:\nnonroot:x:65532:\n' >/out/etc/group
install -d -m 1777 /out/tmp
chown 65532:65532 /out/home/nonroot
EOF
FROM scratch
COPY --from=debian /out /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
WORKDIR /home/nonroot
