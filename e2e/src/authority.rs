//! A certificate authority of a test, for servers on this machine and for callers.

use std::{fs, net::IpAddr, path::Path};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};

use crate::users::base64;

/// A certificate authority. Only those that get its certificate trust it.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    /// Returns its certificate as PEM.
    pub fn certificate(&self) -> &str {
        &self.pem
    }

    /// Returns a certificate for these names, and its key, as PEM.
    pub(crate) fn issue(&self, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// Writes a server's certificate for an address and its key to `tls.crt` and `tls.key` in a directory.
    pub(crate) fn write_server_certificate(&self, address: IpAddr, directory: &Path) -> Result<()> {
        let (certificate, key) = self.issue(vec![SanType::IpAddress(address)], ExtendedKeyUsagePurpose::ServerAuth)?;
        fs::create_dir_all(directory)?;
        fs::write(directory.join("tls.crt"), certificate)?;
        fs::write(directory.join("tls.key"), key)?;
        Ok(())
    }

    /// Returns a Secret with a certificate for one name, as cert-manager writes it: a host's is of a server, a URI's of a
    /// client.
    pub fn secret(&self, secret: &str, name: SanType) -> Result<Value> {
        let is_client = matches!(name, SanType::URI(_));
        let usage = if is_client { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth };
        let (certificate, key) = self.issue(vec![name], usage)?;
        let data = json!({
            "tls.crt": base64(certificate.as_bytes()),
            "tls.key": base64(key.as_bytes()),
            "ca.crt": base64(self.pem.as_bytes()),
        });
        Ok(json!({ "kind": "Secret", "metadata": { "name": secret }, "data": data }))
    }
}
