//! The URL of a webhook: its source, and its validation. It is a secret, so no type may show it.

use std::{env, fmt, fs, io, net::IpAddr, path::PathBuf, str::FromStr};

use http::Uri;
use thiserror::Error;

/// The source of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UrlSource {
    /// A file whose first line is the URL. It is read for every attempt, so that it can be rotated.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

/// A URL that can be posted to.
#[derive(Clone)]
pub(super) struct SecretUrl(Uri);

/// The reason why there is no usable URL. No text quotes one.
#[derive(Debug, Error)]
pub enum UrlError {
    /// The source is neither a file nor a variable.
    #[error(
        "say where the URL is kept, as file:PATH or env:NAME: a URL itself would show in the list of processes \
             (what was given isn't repeated here)"
    )]
    NoSource,
    /// The file can't be read.
    #[error("file {path}: can't read it: {error}: put the webhook's URL there")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The variable isn't set.
    #[error("environment variable {0}: not set: put the webhook's URL there")]
    Unset(String),
    /// The source holds no usable URL.
    #[error("{0}: {1} (the URL isn't shown, since it is a secret)")]
    Unusable(UrlSource, &'static str),
    /// The system's root certificates can't be read.
    #[error("can't read the system's root certificates: {0}: install them, or name their file in SSL_CERT_FILE")]
    Certificates(io::Error),
}

impl UrlSource {
    /// Reads the current URL. `http` is refused beyond loopback unless it is allowed.
    pub(super) fn read(&self, allow_http: bool) -> Result<SecretUrl, UrlError> {
        let text = match self {
            Self::File(path) => {
                fs::read_to_string(path).map_err(|error| UrlError::Unreadable { path: path.clone(), error })?
            }
            Self::Variable(name) => env::var(name).map_err(|_| UrlError::Unset(name.clone()))?,
        };
        let unusable = |why| UrlError::Unusable(self.clone(), why);
        let uri: Uri = text
            .trim()
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end()
            .parse()
            .map_err(|_| unusable("it holds no URL"))?;
        let Some(authority) = uri.authority() else {
            return Err(unusable("it holds no URL with a host, such as https://hooks.example.com/path"));
        };
        if authority.as_str().contains('@') {
            return Err(unusable("its URL holds a user name or password, which isn't supported"));
        }
        match uri.scheme_str() {
            Some("https") => Ok(SecretUrl(uri)),
            Some("http") if allow_http || is_loopback(authority.host()) => Ok(SecretUrl(uri)),
            Some("http") => Err(unusable(
                "its URL is http, which everyone on the way can read: use https, or allow it with --allow-http or \
                 allowHttp",
            )),
            _ => Err(unusable("its URL is neither https nor http")),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

impl SecretUrl {
    /// Returns true if the URL uses TLS.
    pub(super) fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the URL, for the request only.
    pub(super) fn expose(&self) -> Uri {
        self.0.clone()
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[url]")
    }
}

impl FromStr for UrlSource {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() && !path.contains("://") => Ok(Self::File(PathBuf::from(path))),
            Some(("env", name)) if is_variable(name) => Ok(Self::Variable(name.to_owned())),
            _ => Err(UrlError::NoSource),
        }
    }
}

pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for UrlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}
