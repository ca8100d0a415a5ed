//! The flags of TLS, as typed, and their joint meaning: who may reach the gRPC listener.

use std::{fmt::Display, net::SocketAddr, path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};

use crate::cli::{
    UsageError, help,
    usage::{given, wrong},
    values::parse_bool,
};
use app::Config;
use service::listen::{AllowedClients, ClientFiles, GrpcAddress, TlsFiles};

/// The flags of TLS, as typed.
#[derive(Args, Clone, Debug)]
pub struct TlsArgs {
    /// PEM file with the server's certificate chain; turns on TLS. Reloaded when it changes
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_CERT_FILE", value_name = "FILE", help_heading = help::GRPC)]
    pub tls_cert_file: Option<String>,

    /// PEM file with the key of --tls-cert-file
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_KEY_FILE", value_name = "FILE", help_heading = help::GRPC)]
    pub tls_key_file: Option<String>,

    /// PEM file with authorities of client certificates. Repeatable
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_CLIENT_CA_FILE", value_name = "FILE", help_heading = help::GRPC)]
    pub tls_client_ca_file: Vec<String>,

    /// Admit only clients with this subject alternative name, a DNS name or URI. Repeatable, or separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_ALLOWED_CLIENT_NAMES", value_name = "NAME", help_heading = help::GRPC)]
    pub tls_allowed_client_names: Vec<String>,

    /// Admit clients with this subject alternative name for reads only, whatever other names they have. Repeatable, or
    /// separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_TLS_READ_ONLY_CLIENT_NAMES", value_name = "NAME", help_heading = help::GRPC, hide_short_help = true)]
    pub tls_read_only_client_names: Vec<String>,

    /// Allow a remote --listen without TLS or without client certificates: everyone who reaches it can scale and delete
    /// Machines
    #[arg(long, env = "CAPI_AUTOSCALER_LISTEN_ALLOW_INSECURE", value_parser = parse_bool, help_heading = help::GRPC, hide_short_help = true)]
    pub listen_allow_insecure: bool,

    /// Serve gRPC reflection; auto: on loopback and Unix sockets
    #[arg(long, env = "CAPI_AUTOSCALER_GRPC_REFLECTION", value_name = "WHEN", default_value = "auto", help_heading = help::GRPC, hide_short_help = true)]
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

/// Returns the files of TLS; `None` is no TLS. A listener that other machines can reach needs TLS with client
/// certificates, or the operator's explicit permission to do without.
pub(super) fn tls(
    args: &TlsArgs,
    listen: &GrpcAddress,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsFiles>, UsageError> {
    let files = files(args)?;
    if let (GrpcAddress::Unix(_), Some(_)) = (listen, &files) {
        let why = "a Unix socket has no TLS, its mode says who may connect; leave the flags of TLS out, or give an \
                   IP address and a port";
        return Err(wrong(Config::LISTEN_FLAG, &listen.to_string(), why));
    }
    if listen.is_local() {
        return Ok(files);
    }
    let lack = match &files {
        None => "without TLS",
        Some(TlsFiles { clients: ClientFiles::Any, .. }) => "without client certificates",
        Some(TlsFiles { clients: ClientFiles::Authority { allowed, .. }, .. }) => {
            if allowed.names.is_empty() {
                warnings.push(format!(
                    "gRPC is served on {listen} to every client whose certificate the client authority has issued: where it \
                     issues to others than Cluster Autoscaler, name that by --tls-allowed-client-names"
                ));
            }
            return Ok(files);
        }
    };
    if args.listen_allow_insecure {
        warnings.push(format!(
            "gRPC is served on {listen} {lack}: whoever reaches it can scale and delete Machines; shut others out by a \
             NetworkPolicy, or give --tls-cert-file, --tls-key-file and --tls-client-ca-file"
        ));
        return Ok(files);
    }
    Err(wrong(
        Config::LISTEN_FLAG,
        &listen.to_string(),
        format!(
            "it isn't a loopback address, and {lack} whoever reaches it could scale and delete Machines; give \
             --tls-cert-file, --tls-key-file and --tls-client-ca-file, or --listen-allow-insecure to serve all the same"
        ),
    ))
}

fn files(args: &TlsArgs) -> Result<Option<TlsFiles>, UsageError> {
    let allowed = AllowedClients {
        names: list("--tls-allowed-client-names", &args.tls_allowed_client_names)?,
        read_only: list("--tls-read-only-client-names", &args.tls_read_only_client_names)?,
    };
    let client_ca: Vec<_> =
        args.tls_client_ca_file.iter().filter_map(|file| given(Some(file))).map(PathBuf::from).collect();
    if client_ca.is_empty() {
        let vouched = [
            ("--tls-allowed-client-names", allowed.names.is_empty()),
            ("--tls-read-only-client-names", allowed.read_only.is_empty()),
        ];
        if let Some((flag, _)) = vouched.into_iter().find(|(_, is_empty)| !is_empty) {
            return Err(missing(flag, "--tls-client-ca-file", "an authority has to vouch for the clients"));
        }
    }
    match (given(args.tls_cert_file.as_deref()), given(args.tls_key_file.as_deref())) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
            certificate: PathBuf::from(certificate),
            key: PathBuf::from(key),
            clients: if client_ca.is_empty() {
                ClientFiles::Any
            } else {
                ClientFiles::Authority { files: client_ca, allowed }
            },
        })),
        (Some(_), None) => {
            Err(missing("--tls-cert-file", "--tls-key-file", "a certificate is of no use without its key"))
        }
        (None, Some(_)) => {
            Err(missing("--tls-key-file", "--tls-cert-file", "a key is of no use without its certificate"))
        }
        (None, None) if !client_ca.is_empty() => {
            Err(missing("--tls-client-ca-file", "--tls-cert-file", "clients can show certificates only over TLS"))
        }
        (None, None) => Ok(None),
    }
}

fn missing(given: &'static str, other: &'static str, why: &'static str) -> UsageError {
    UsageError::Needs { given, other, why }
}

/// Parses values separated by space; an empty value counts as none.
fn list<T: FromStr<Err: Display>>(flag: &'static str, values: &[String]) -> Result<Vec<T>, UsageError> {
    let words = values.iter().flat_map(|value| value.split_whitespace());
    words.map(|text| text.parse().map_err(|error| wrong(flag, text, error))).collect()
}

/// Returns true for loopback, including IPv4-mapped IPv6 addresses.
pub(super) fn is_loopback(listen: SocketAddr) -> bool {
    listen.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
