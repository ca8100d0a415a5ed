//! The price file: read at the start, where a bad one is an error, and followed as it changes, where a bad one leaves
//! the prices from before in force. It must never make anyone wait for a disk but its own task.

mod follow;
mod form;

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use thiserror::Error;

pub use self::follow::{PriceMetrics, Settings};
use nodegroup::PriceList;

/// A ConfigMap holds no more, and the prices of all instance types of a cloud are a tenth of it.
const LARGEST: u64 = 1 << 20;

/// Why a price file can't be used.
#[derive(Debug, Error)]
pub enum PriceFileError {
    /// It can't be read.
    #[error("price file {}: it can't be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no file of prices.
    #[error("price file {}: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The defect, and its place.
        reason: String,
    },
}

/// A price file whose prices are known.
#[derive(Debug)]
pub struct PriceFile {
    path: PathBuf,
    /// The text of the prices that are in force.
    text: String,
}

impl PriceFile {
    /// Reads a price file.
    ///
    /// # Errors
    /// When it can't be read, or is no file of prices.
    pub fn open(path: &Path) -> Result<(Self, Arc<PriceList>), PriceFileError> {
        let text = read(path)?;
        let prices = parse(path, &text)?;
        Ok((Self { path: path.to_owned(), text }, Arc::new(prices)))
    }
}

fn read(path: &Path) -> Result<String, PriceFileError> {
    let form = |reason: String| PriceFileError::Form { path: path.to_owned(), reason };
    let failed = |error| PriceFileError::Read { path: path.to_owned(), error };
    // Opening a pipe would wait for who writes it.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(form("it is no file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(form(format!("it is longer than {LARGEST} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| form(format!("it is no UTF-8 text: {error}")))
}

fn parse(path: &Path, text: &str) -> Result<PriceList, PriceFileError> {
    form::parse(text).map_err(|reason| PriceFileError::Form { path: path.to_owned(), reason })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;
