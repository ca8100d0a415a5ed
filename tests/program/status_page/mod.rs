//! Tests of the whole program's status page on a sandbox: in a real browser, and compared with the other views.
mod agreement;
mod browser;
mod fleet;
mod readable;
mod views;
