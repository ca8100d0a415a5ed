//! The kind of an object.

/// The kind of an object, as the API server names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Kind {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural name, such as `machines`.
    pub plural: String,
}

impl Kind {
    /// Returns the value of `apiVersion`: `group/version`, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns true if its objects are Secrets of the core group.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }
}
