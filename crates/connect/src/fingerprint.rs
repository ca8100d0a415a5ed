//! Fingerprints of configurations, for detecting changes. A fingerprint is a hash of the content and of the files it
//! names, so that no secret is kept for comparison.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    sync::OnceLock,
};

use kube::config::Kubeconfig;

/// The hash of a configuration; equal for equal configurations within this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fingerprint(u64);

/// The builder of a [`Fingerprint`].
pub(super) struct FingerprintBuilder(std::hash::DefaultHasher);

impl FingerprintBuilder {
    pub(super) fn new() -> Self {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        Self(KEY.get_or_init(RandomState::new).build_hasher())
    }

    pub(super) fn add(mut self, part: &[u8]) -> Self {
        self.0.write_usize(part.len());
        self.0.write(part);
        self
    }

    /// Adds the content of a file; an unreadable file has a value of its own.
    pub(super) fn add_file(self, path: &str) -> Self {
        match fs::read(path) {
            Ok(content) => self.add(&[1]).add(&content),
            Err(_) => self.add(&[0]),
        }
    }

    /// Adds a kubeconfig with the certificates and keys it names. Token files are left out, since kube reads them for
    /// each request.
    pub(super) fn add_kubeconfig(self, kubeconfig: &Kubeconfig) -> Self {
        // Anything read from YAML can be written as JSON.
        let all = self.add(&serde_json::to_vec(kubeconfig).unwrap_or_default());
        let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
        let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
        clusters
            .filter_map(|cluster| cluster.certificate_authority.as_deref())
            .chain(users.flat_map(|user| [user.client_certificate.as_deref(), user.client_key.as_deref()]).flatten())
            .filter(|path| !path.is_empty())
            .fold(all, Self::add_file)
    }

    pub(super) fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finish())
    }
}
