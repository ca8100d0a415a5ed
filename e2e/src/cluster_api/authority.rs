//! A certificate authority of a test, for the webhooks of processes on this machine.

use std::{fs, net::IpAddr, path::Path};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A certificate authority. Only clients that get its certificate trust it.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a certificate authority.
    pub fn new() -> Result<Self> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { issuer: CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)? })
    }

    /// Returns its certificate as PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.issuer.as_ref().pem()
    }

    /// Writes a certificate for an address and its key to `tls.crt` and `tls.key` in a directory.
    pub(crate) fn write_server_certificate(&self, address: IpAddr, directory: &Path) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![address.to_string()])?.signed_by(&key, &self.issuer)?;
        fs::create_dir_all(directory)?;
        fs::write(directory.join("tls.crt"), certificate.pem())?;
        fs::write(directory.join("tls.key"), key.serialize_pem())?;
        Ok(())
    }
}
