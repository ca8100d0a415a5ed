//! The price file. It is read at the start, where a bad file is an error, and followed afterwards, where a bad file
//! leaves the previous prices in force. After the start, only the task that follows it may wait for a disk.

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
use rules::PriceList;

/// The maximum size of a file in bytes. A ConfigMap can't hold more, and the prices of a cloud's instance types need
/// only a tenth of it.
const LARGEST: u64 = 1 << 20;

/// The reason why a price file is unusable.
#[derive(Debug, Error)]
pub enum PriceFileError {
    /// The file can't be read.
    #[error("price file {}: it can't be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file's content isn't a price list.
    #[error("price file {}: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The defect and its position.
        reason: String,
    },
}

/// A price file that was read.
#[derive(Debug)]
pub struct PriceFile {
    path: PathBuf,
    /// The text of the prices in force.
    text: String,
}

impl PriceFile {
    /// Reads a price file.
    ///
    /// # Errors
    /// If the file can't be read, or holds no price list.
    pub fn open(path: &Path) -> Result<(Self, Arc<PriceList>), PriceFileError> {
        let text = read(path)?;
        let prices = parse(path, &text)?;
        Ok((Self { path: path.to_owned(), text }, Arc::new(prices)))
    }
}

fn read(path: &Path) -> Result<String, PriceFileError> {
    let form = |reason: String| PriceFileError::Form { path: path.to_owned(), reason };
    let failed = |error| PriceFileError::Read { path: path.to_owned(), error };
    // Opening a pipe would block until somebody writes to it.
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
