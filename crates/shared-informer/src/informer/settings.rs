//! The page sizes, timeouts and limits of an informer. Must never hold anything about a particular resource.

use std::{fmt, time::Duration};

use super::shared_limit::SharedLimit;

/// The settings of an informer's lists, watches and pauses. The defaults suit a production API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// True if lists are requested as streams (`sendInitialEvents`), which avoids whole pages in the memory of the
    /// server and this process. If the server doesn't support it, pages are requested. Default true.
    pub streaming_lists: bool,
    /// The time without events after which a streamed list has stalled: some servers and proxies treat the request as
    /// a plain watch, which never reports the end of the list. From then on only pages are requested. Default 10 s.
    pub stream_idle: Duration,
    /// The time after which a streamed list without its end is given up, however many events come: they may be those of
    /// a plain watch on a busy kind. From then on only pages are requested. Default 120 s.
    pub stream_timeout: Duration,
    /// The number of objects per list page. Default 500.
    pub page_size: u32,
    /// The maximum wait for one list page. Default 60 s.
    pub list_timeout: Duration,
    /// The first pause after a failure. Each further pause is twice as long, less a random part of up to half.
    /// Default 0.5 s.
    pub backoff_min: Duration,
    /// The maximum pause after failures. Default 10 s: after an outage, all users of the informer wait for it.
    pub backoff_max: Duration,
    /// The time without an event or bookmark after which a watch has stalled and is restarted; also the maximum wait
    /// for its answer to begin. API servers send a bookmark about every minute. Default 150 s.
    pub watch_idle: Duration,
    /// The time for which the server is asked to keep a watch, less a random part of up to a tenth, so that not all
    /// watches end at once. Default 290 s.
    pub watch_timeout: Duration,
    /// The maximum length of an event in bytes. A watch with a longer line is closed; if that happens repeatedly, a
    /// list replaces it. Default 8 MiB, several times the maximum that an API server stores of one object.
    pub max_event_bytes: usize,
    /// The maximum length of a list page in bytes. Beyond it, half as many objects are requested; one object beyond
    /// it fails the list. Default 8 MiB.
    pub max_page_bytes: usize,
    /// The maximum number of objects of a kind. A list or watch with more is aborted, and the known objects stay.
    /// Default 150,000.
    pub max_objects: usize,
    /// The maximum memory of a kind's objects in bytes, as estimated from the lengths of what a projection keeps. A
    /// list or watch with more is aborted, and the known objects stay. Default 96 MiB, for 150,000 objects 671 bytes
    /// each.
    pub max_bytes: usize,
    /// The limit of the objects of one namespace. Further ones are left out, and the other namespaces go on. Default
    /// `None`: the limits of the kind are the only ones.
    pub max_of_namespace: Option<NamespaceLimit>,
    /// The limit of bytes that informers of several kinds share. It holds during lists too, whose new objects come
    /// beside the known ones, and a list or watch with more is aborted likewise. Default `None`.
    pub shared_limit: Option<SharedLimit>,
}

/// The limit of a kind's objects in one namespace, below those of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceLimit {
    /// The maximum number of objects.
    pub objects: usize,
    /// The maximum memory in bytes, estimated as for [`Settings::max_bytes`].
    pub bytes: usize,
}

impl fmt::Display for NamespaceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects or {} bytes", self.objects, self.bytes)
    }
}

impl Settings {
    /// Returns the settings for a kind that many tenants have objects of, each in namespaces of its own. No namespace
    /// has more than a kind has by default, and none can take the kind from the others: 1,000,000 objects and 1 GiB.
    #[must_use]
    pub fn of_many_tenants() -> Self {
        let one = Self::default();
        let of_one = NamespaceLimit { objects: one.max_objects, bytes: one.max_bytes };
        Self { max_objects: 1_000_000, max_bytes: 1 << 30, max_of_namespace: Some(of_one), ..one }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streaming_lists: true,
            stream_idle: Duration::from_secs(10),
            stream_timeout: Duration::from_secs(120),
            page_size: 500,
            list_timeout: Duration::from_secs(60),
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(10),
            watch_idle: Duration::from_secs(150),
            watch_timeout: Duration::from_secs(290),
            max_event_bytes: 8 << 20,
            max_page_bytes: 8 << 20,
            max_objects: 150_000,
            max_bytes: 96 << 20,
            max_of_namespace: None,
            shared_limit: None,
        }
    }
}
