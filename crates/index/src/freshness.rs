//! The freshness of an index: its feed answers whether readers may rely on it.

/// The check that the index is fresh enough to rely on.
pub trait Freshness: Send + Sync + 'static {
    /// Checks that every core cache is in sync, and that its watch is recent enough.
    ///
    /// # Errors
    /// The cache that fails the check, with the reason.
    fn check(&self) -> Result<(), String>;
}
