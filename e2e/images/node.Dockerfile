# A node of kind and CAPD without a registry: Debian, kind's own files for its base image, Kubernetes and containerd from their
# pinned modules, and the images of all components.
FROM scratch
ADD rootfs.tar /
COPY --from=kind etc /etc/
COPY --from=kind kind /kind/
COPY --from=kind usr/local/bin/entrypoint /usr/local/bin/
COPY --from=node etc /etc/
COPY --from=node kind /kind/
COPY --from=node bin /usr/local/bin/
COPY --from=containerd . /usr/local/bin/
COPY --from=kubernetes kubelet kubeadm /usr/bin/
COPY --from=kubectl kubectl /usr/bin/
ARG VERSION
ARG PAUSE
RUN <<'EOF'
set -eu
chmod -R u=rwX,go=rX /etc/containerd /etc/systemd/system /etc/kubernetes /etc/default /etc/sysctl.d /etc/crictl.yaml /kind
chmod 0755 /usr/local/bin/* /usr/bin/kubelet /usr/bin/kubeadm /usr/bin/kubectl /kind/bin/*
echo "$VERSION" >/kind/version

# kind's settings, except: cgroupfs, since some machines have no systemd; no negative OOM scores and no AppArmor, since some may
# set neither; and a Pod network that containerd itself makes, since kind's comes as an image.
configuration=/etc/containerd/config.toml
sed -i -e 's/SystemdCgroup = true/SystemdCgroup = false/' -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
    -e "s|sandbox_image = .*|sandbox_image = \"$PAUSE\"\n  disable_apparmor = true|" "$configuration"
cat >>"$configuration" <<'TOML'
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_template = "/etc/containerd/cni.template"
TOML
ctr oci spec | jq '.hooks.createContainer[.hooks.createContainer | length] |= . + {"path": "/kind/bin/mount-product-files.sh"}
    | del(.process.rlimits)' >/etc/containerd/cri-base.json

# As in kind's base image: systemd starts nothing of the distribution's, and doesn't show the machine's kernel log.
find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* /lib/systemd/system/local-fs.target.wants/* \
    /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl* \
    /lib/systemd/system/basic.target.wants/*
echo ReadKMsg=no >>/etc/systemd/journald.conf
ln -sf /lib/systemd/systemd /sbin/init
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
mkdir -p /etc/kubernetes/manifests
rm -f /etc/machine-id
EOF
# Imported but not unpacked: that takes privileges, and containerd does it when a container is first made.
RUN --mount=type=bind,from=images,target=/images <<'EOF'
set -eu
containerd --log-level warn >/tmp/containerd.log 2>&1 &
timeout 60 sh -c 'until ctr version >/dev/null 2>&1; do sleep 0.2; done' || { cat /tmp/containerd.log >&2; exit 1; }
for archive in /images/*.tar; do
    ctr --namespace=k8s.io images import --label=io.cri-containerd.pinned=pinned --all-platforms --no-unpack --digests "$archive"
done
kill $!
wait $! || true
rm -rf /tmp/containerd.log /run/containerd
EOF
ARG INPUTS
LABEL io.capi-autoscaler-provider.inputs="$INPUTS"
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
