//! The certificates of a fleet: an authority, the server's certificate, and one for the autoscaler of each Cluster.

use std::{fs, io, net::Ipv4Addr, path::Path};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};

/// The name of the server.
pub(crate) const HOST: &str = "capi-autoscaler-provider";
/// The trust domain of the autoscalers' identities.
pub(crate) const TRUST_DOMAIN: &str = "sandbox.example";

/// The names of the files, in the order of the flags `--tls-cert-file`, `--tls-key-file` and `--tls-client-ca-file`.
pub(crate) const FILES: [&str; 3] = ["server.crt", "server.key", "authority.crt"];

/// A certificate authority of servers and clients.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    fn issue(&self, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> Result<Pair, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }

    /// Returns the certificate that names a Cluster.
    pub(crate) fn client(&self, namespace: &str, cluster: &str) -> Result<Pair, rcgen::Error> {
        let uri = format!("spiffe://{TRUST_DOMAIN}/ns/{namespace}/cluster/{cluster}");
        self.issue(vec![SanType::URI(uri.as_str().try_into()?)], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Writes the server's [`FILES`] to a folder.
    pub(crate) fn write_server(&self, folder: &Path) -> io::Result<()> {
        let name = SanType::DnsName(HOST.try_into().map_err(io::Error::other)?);
        let names = vec![name, SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        let server = self.issue(names, ExtendedKeyUsagePurpose::ServerAuth).map_err(io::Error::other)?;
        for (file, content) in FILES.iter().zip([&server.certificate, &server.key, &self.pem]) {
            fs::write(folder.join(file), content)?;
        }
        Ok(())
    }
}
