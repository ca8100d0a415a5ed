//! The page sizes, timeouts and limits of an informer. Must never hold anything about a particular resource.

use std::time::Duration;

/// The settings by which an informer lists, watches and waits. The defaults suit a production API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// True if lists are requested as streams (`sendInitialEvents`), which spares the server and this process whole
    /// pages in memory. A server that doesn't have it is asked for pages. Default true.
    pub streaming_lists: bool,
    /// A streamed list in which nothing comes for this long has stalled: some servers and proxies take the request for
    /// a plain watch, which never says that the list is complete. After that only pages are asked for. Default 10 s.
    pub stream_idle: Duration,
    /// Objects per list page. Default 500.
    pub page_size: u32,
    /// The longest wait for one list page. Default 60 s.
    pub list_timeout: Duration,
    /// The first pause after a failure; every further one is twice as long, less up to half of it by chance.
    /// Default 0.5 s.
    pub backoff_min: Duration,
    /// The longest pause after failures. Default 10 s: whoever follows what is here waits for it after an outage.
    pub backoff_max: Duration,
    /// A watch that gives nothing at all for this long, no event and no bookmark, is stalled and started anew; so is one
    /// whose answer doesn't begin in this time. API servers send a bookmark about every minute. Default 150 s.
    pub watch_idle: Duration,
    /// The time for which the server is asked to keep a watch, less up to a tenth of it by chance, so that not all
    /// watches end at once. Default 290 s.
    pub watch_timeout: Duration,
    /// The longest event of a watch in bytes. A watch that sends more without the end of a line is given up; when that
    /// happens again and again, a list takes its place. Default 8 MiB, several times what an API server stores of one object.
    pub longest_event: usize,
    /// The longest list page in bytes. Of a longer one half as many objects are asked for; one object that is longer fails
    /// the list. Default 8 MiB.
    pub longest_page: usize,
    /// The greatest number of objects of a kind. A list or watch that gives more is given up, and what was known stays.
    /// Default 150,000.
    pub most_objects: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streaming_lists: true,
            stream_idle: Duration::from_secs(10),
            page_size: 500,
            list_timeout: Duration::from_secs(60),
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(10),
            watch_idle: Duration::from_secs(150),
            watch_timeout: Duration::from_secs(290),
            longest_event: 8 << 20,
            longest_page: 8 << 20,
            most_objects: 150_000,
        }
    }
}
