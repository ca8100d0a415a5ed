//! Tests of the whole program's status page on a sandbox, in a real browser.

mod browser;
mod readable;
