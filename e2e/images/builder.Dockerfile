# The builder of the project's Dockerfile without a registry: Debian with a C compiler, and the installed Rust.
FROM scratch
ADD rootfs.tar /
COPY --from=rust-bin cargo rustc /usr/local/rust/bin/
COPY --from=rust-lib . /usr/local/rust/lib/
# The machine's certificate authorities: crates are fetched through whatever it trusts.
COPY --from=machine certificates.pem /etc/ssl/certs/ca-certificates.crt
ENV CARGO_HOME=/usr/local/cargo \
    PATH=/usr/local/cargo/bin:/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
