//! Self-signed certificates.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

/// A self-signed certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Certificate {
    /// Creates one for a name.
    pub fn of(name: &str) -> Self {
        Self::new(&CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// Creates a certificate for a name, valid from the year 2000 until `end`, counted from the Unix epoch.
    pub fn valid_until(name: &str, end: Duration) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        Self::new(&params)
    }

    fn new(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }
}
