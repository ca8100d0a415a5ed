//! The flags of TLS as they are typed, and what they mean together: who may reach the gRPC listener.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};

use super::{
    UsageError,
    picture_args::parse_bool,
    picture_config::{Flag, given},
    serve_config::LISTEN,
};
use crate::server::{AllowedName, ClientFiles, GrpcAddress, TlsFiles};

/// The flags of TLS, as typed.
#[derive(Args, Clone, Debug)]
pub struct TlsArgs {
    /// Serve gRPC over TLS with the certificate chain in this PEM file. It is read again when it changes
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<String>,

    /// The private key of --tls-cert-file, in PEM
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<String>,

    /// Take only clients whose certificate an authority in this PEM file has issued
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_CLIENT_CA_FILE", value_name = "FILE")]
    pub tls_client_ca_file: Option<String>,

    /// With --tls-client-ca-file, take only clients whose certificate has this subject alternative name: a DNS name, or a
    /// URI such as spiffe://domain/path. Repeatable; several in one value are separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_ALLOWED_CLIENT_NAMES", value_name = "NAME")]
    pub tls_allowed_client_names: Vec<String>,

    /// Let --listen be an address that other machines can reach without TLS, or with TLS and without client
    /// certificates: whoever reaches it can scale and delete Machines
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN_ALLOW_INSECURE", value_parser = parse_bool)]
    pub listen_allow_insecure: bool,

    /// Whether gRPC reflection is served; auto is on loopback only
    #[arg(long, env = "CAPI_AUTOSCALER_GRPC_REFLECTION", value_name = "WHEN", default_value = "auto")]
    pub grpc_reflection: Reflection,
}

/// When gRPC reflection is served.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Reflection {
    /// On loopback only.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Reflection {
    pub(super) fn is_on(self, listen: &GrpcAddress) -> bool {
        match self {
            Self::Auto => listen.is_local(),
            Self::On => true,
            Self::Off => false,
        }
    }
}

const CERTIFICATE: Flag = Flag { name: "--tls-cert-file", variable: "CAPI_AUTOSCALER_TLS_CERT_FILE", default: "" };
const KEY: Flag = Flag { name: "--tls-key-file", variable: "CAPI_AUTOSCALER_TLS_KEY_FILE", default: "" };
const CLIENT_CA: Flag =
    Flag { name: "--tls-client-ca-file", variable: "CAPI_AUTOSCALER_TLS_CLIENT_CA_FILE", default: "" };
const NAMES: Flag =
    Flag { name: "--tls-allowed-client-names", variable: "CAPI_AUTOSCALER_TLS_ALLOWED_CLIENT_NAMES", default: "" };
/// All of them, to be compared with the flags there are.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 4] = [CERTIFICATE, KEY, CLIENT_CA, NAMES];

/// The files of TLS; `None` is none. A listener that others can reach needs TLS with client certificates, or the word
/// of the operator that it doesn't.
pub(super) fn tls(
    args: &TlsArgs,
    listen: &GrpcAddress,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsFiles>, UsageError> {
    let files = files(args)?;
    if let (GrpcAddress::Unix(_), Some(_)) = (listen, &files) {
        let why = "a Unix socket has no TLS, its mode and owner say who may connect; leave the flags of TLS out, or give an \
                   IP address and a port";
        return Err(LISTEN.wrong(&listen.to_string(), &why));
    }
    if listen.is_local() {
        return Ok(files);
    }
    let lack = match &files {
        None => "without TLS",
        Some(TlsFiles { clients: ClientFiles::Any, .. }) => "without client certificates",
        Some(TlsFiles { clients: ClientFiles::Authority { .. }, .. }) => return Ok(files),
    };
    if args.listen_allow_insecure {
        warnings.push(format!(
            "gRPC is served on {listen} {lack}: whoever reaches it can scale and delete Machines; shut others out by a \
             NetworkPolicy, or give --tls-cert-file, --tls-key-file and --tls-client-ca-file"
        ));
        return Ok(files);
    }
    Err(LISTEN.wrong(
        &listen.to_string(),
        &format!(
            "it isn't a loopback address, and {lack} whoever reaches it could scale and delete Machines; give \
             --tls-cert-file, --tls-key-file and --tls-client-ca-file, or --listen-allow-insecure to serve all the same"
        ),
    ))
}

fn files(args: &TlsArgs) -> Result<Option<TlsFiles>, UsageError> {
    let names = names(&args.tls_allowed_client_names)?;
    let client_ca = given(args.tls_client_ca_file.as_deref());
    if client_ca.is_none() && !names.is_empty() {
        return Err(missing(&NAMES, &CLIENT_CA, "an authority has to vouch for the names"));
    }
    match (given(args.tls_cert_file.as_deref()), given(args.tls_key_file.as_deref())) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
            certificate: PathBuf::from(certificate),
            key: PathBuf::from(key),
            clients: client_ca
                .map_or(ClientFiles::Any, |file| ClientFiles::Authority { file: PathBuf::from(file), names }),
        })),
        (Some(_), None) => Err(missing(&CERTIFICATE, &KEY, "a certificate is of no use without its key")),
        (None, Some(_)) => Err(missing(&KEY, &CERTIFICATE, "a key is of no use without its certificate")),
        (None, None) if client_ca.is_some() => {
            Err(missing(&CLIENT_CA, &CERTIFICATE, "clients can show certificates only over TLS"))
        }
        (None, None) => Ok(None),
    }
}

fn missing(given: &Flag, other: &Flag, why: &'static str) -> UsageError {
    UsageError::Needs { given: given.name, other: other.name, variable: other.variable, why }
}

fn names(values: &[String]) -> Result<Vec<AllowedName>, UsageError> {
    values
        .iter()
        .flat_map(|value| value.split_whitespace())
        .map(|text| text.parse().map_err(|error| NAMES.wrong(text, &error)))
        .collect()
}

/// An IPv4 address in IPv6's clothes counts as what it is.
pub(super) fn is_loopback(listen: SocketAddr) -> bool {
    listen.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
