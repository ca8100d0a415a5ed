//! Checks that need no cluster: the flags, the price file, and the files of TLS.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;
use rules::PriceList;

use super::{
    SOON,
    report::{CheckId, Findings},
};
use app::prices::PriceFile;
use service::listen::{AllowedName, CertificateFacts, ClientFiles, GrpcAddress, TlsFiles, inspect};

/// Reports settings that are allowed but deserve attention.
pub(super) fn flags(findings: &mut Findings, warnings: &[String]) {
    for warning in warnings {
        findings.warn(CheckId::Flags, "", warning, "");
    }
    if warnings.is_empty() {
        findings.ok(CheckId::Flags, "", "they fit together");
    }
}

/// Checks the price file, if there is one. Returns no prices if it is missing or invalid.
pub(super) fn prices(findings: &mut Findings, path: Option<&Path>) -> Arc<PriceList> {
    let Some(path) = path else { return Arc::default() };
    match PriceFile::open(path) {
        Ok((_, prices)) => {
            findings.ok(CheckId::Prices, path.display().to_string(), "read");
            prices
        }
        Err(error) => {
            findings.error(CheckId::Prices, "", error.to_string(), "");
            Arc::default()
        }
    }
}

/// Checks the files of TLS as the server loads them, and as its clients validate them.
pub(super) fn tls(
    findings: &mut Findings,
    files: Option<&TlsFiles>,
    (listen, server_name): (&GrpcAddress, Option<&str>),
    now: Timestamp,
) {
    let Some(files) = files else {
        findings.ok(CheckId::Tls, "", format!("gRPC is served on {listen} without TLS"));
        if let Some(host) = server_name {
            let message = format!("there is no certificate for {host}: gRPC is served without TLS");
            findings.warn(
                CheckId::ServerName,
                "",
                message,
                "give --tls-cert-file and --tls-key-file, or no --server-name",
            );
        }
        return;
    };
    let inspection = match inspect(files, now) {
        Ok(inspection) => inspection,
        Err(error) => {
            findings.error(CheckId::Tls, "", error.to_string(), "");
            if server_name.is_some() {
                findings.skip(CheckId::ServerName, "the certificate can't be used");
            }
            return;
        }
    };
    chain(findings, &files.certificate, &inspection.server, now);
    clients(findings, files, &inspection.clients, now);
    if let (Some(host), Some(leaf)) = (server_name, inspection.server.first()) {
        let subject = files.certificate.display().to_string();
        if leaf.is_for(host) {
            findings.ok(CheckId::ServerName, subject, format!("it is for {host}"));
        } else {
            let message = format!("it isn't for {host}, but for {}", named(leaf));
            let remedy =
                "make it anew with the host of address among its subject alternative names, or correct address";
            findings.error(CheckId::ServerName, subject, message, remedy);
        }
    }
}

fn chain(findings: &mut Findings, path: &Path, chain: &[CertificateFacts], now: Timestamp) {
    let path = path.display().to_string();
    let Some(leaf) = chain.first() else { return };
    if leaf.names.is_empty() {
        let remedy = "make it anew with one: Cluster Autoscaler takes no certificate by its common name";
        findings.error(CheckId::Tls, &path, "the server's certificate has no subject alternative name", remedy);
    }
    if !leaf.may_serve {
        let message = "the server's certificate isn't for servers: its extended key usage lacks serverAuth";
        findings.error(CheckId::Tls, &path, message, "make it anew with the usage server auth");
    }
    for (number, pair) in chain.windows(2).enumerate() {
        let [certificate, next] = pair else { continue };
        if certificate.issuer != next.subject {
            let message = format!(
                "certificate {} was issued by {}, and after it comes {}",
                number + 1,
                certificate.issuer,
                next.subject
            );
            findings.warn(
                CheckId::Tls,
                &path,
                message,
                "order the chain from the server's certificate to its authority",
            );
        }
    }
    for (number, certificate) in chain.iter().enumerate() {
        let what =
            if number == 0 { "the server's certificate".to_owned() } else { format!("certificate {}", number + 1) };
        dates(findings, &path, &what, certificate, now);
    }
}

fn clients(findings: &mut Findings, files: &TlsFiles, authorities: &[CertificateFacts], now: Timestamp) {
    let ClientFiles::Authority { files, allowed } = &files.clients else {
        findings.ok(CheckId::Tls, "", "clients need no certificate");
        return;
    };
    let path = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    for authority in authorities {
        dates(findings, &path, &format!("client authority {}", authority.subject), authority, now);
        if !authority.is_authority {
            let message = format!("{} isn't an authority: its basic constraints don't say CA", authority.subject);
            findings.error(
                CheckId::Tls,
                &path,
                message,
                "give the certificate of who issued the clients' certificates",
            );
        }
    }
    let listed = |names: &[AllowedName]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut names = if allowed.names.is_empty() { "any name".to_owned() } else { listed(&allowed.names) };
    if !allowed.read_only.is_empty() {
        names = format!("{names}, and only to read for {}", listed(&allowed.read_only));
    }
    findings.ok(CheckId::Tls, "", format!("clients need a certificate of {path} for {names}"));
}

fn dates(findings: &mut Findings, path: &str, what: &str, certificate: &CertificateFacts, now: Timestamp) {
    let CertificateFacts { from, until, .. } = certificate;
    let left = until.duration_since(now);
    if !(*from..=*until).contains(&now) {
        let message = format!("{what} is valid from {from} to {until} only");
        findings.warn(CheckId::Tls, path, message, "renew it, or take it out of the file");
    } else if left.unsigned_abs() < SOON {
        let message = format!("{what} is valid until {until}, for {} more days", left.as_hours() / 24);
        findings.warn(CheckId::Tls, path, message, "renew it; a new file is loaded without a restart");
    } else {
        findings.ok(CheckId::Tls, path, format!("{what} is valid until {until}, for {}", named(certificate)));
    }
}

fn named(certificate: &CertificateFacts) -> String {
    if certificate.names.is_empty() { certificate.subject.clone() } else { certificate.names.join(", ") }
}
