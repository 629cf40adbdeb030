// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics for whoever collects them: the text of `OpenMetrics` 1.0, and a server that answers with it.
//!
//! The one place for that, for watches and whatever else runs for long. The text is written here and not by a library: counters are
//! read from the kernel's memory when they are asked for, so there is no registry to keep, which is what libraries are about.

mod server;
mod text;

pub use server::MetricsServer;
use std::net::{Ipv4Addr, SocketAddr};
pub use text::{Exposition, Family, Kind};

/// Where metrics are asked for: `ADDRESS:PORT`, or `PORT` of this machine only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

impl std::str::FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
            return Ok(MetricsAddress(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        text.parse().map(MetricsAddress).map_err(|_| {
            format!("'{text}' is not an address; write a port (9464: for this machine only), or 0.0.0.0:9464, or [::]:9464")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_machine_only() {
        let parse = |text: &str| text.parse::<MetricsAddress>().map(|address| address.0.to_string());
        assert_eq!(parse("9464"), Ok("127.0.0.1:9464".to_string()));
        assert_eq!(parse(":9464"), Ok("127.0.0.1:9464".to_string()));
        assert_eq!(parse("0.0.0.0:1"), Ok("0.0.0.0:1".to_string()));
        assert_eq!(parse("[::1]:1"), Ok("[::1]:1".to_string()));
        for wrong in ["", "x", "70000", "localhost:", "1.2.3.4"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
