//! The proxies in front of this server, by address. On an address that other machines can reach without TLS, only they
//! may connect.
//!
//! A proxy has no other meaning here: what it says about its client (`X-Forwarded-For`, `Forwarded`) is not read, because
//! any client can write it too.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address or a network of proxies: `192.0.2.7`, `10.0.0.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyAddress {
    address: IpAddr,
    prefix_bits: u8,
}

impl ProxyAddress {
    /// Whether a peer is among them.
    pub fn contains(&self, peer: IpAddr) -> bool {
        let (own, peer) = (self.address, peer.to_canonical());
        match (own, peer) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                let shift = 32 - u32::from(self.prefix_bits);
                own.to_bits().checked_shr(shift) == peer.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => {
                let shift = 128 - u32::from(self.prefix_bits);
                own.to_bits().checked_shr(shift) == peer.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for ProxyAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is no address of a proxy: give an IP address such as 10.0.0.5, or a network such as 10.0.0.0/24",
                terminal::plain(text)
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => bits_max,
            Some(bits) => {
                bits.parse::<u8>().ok().filter(|bits| (1..=bits_max).contains(bits)).ok_or_else(wrong)?
            }
        };
        match address.is_unspecified() || address.is_multicast() {
            true => Err(wrong()),
            false => Ok(Self { address, prefix_bits }),
        }
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits_max = if self.address.is_ipv4() { 32 } else { 128 };
        match self.prefix_bits == bits_max {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.prefix_bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_addresses_and_networks_are_proxies() {
        let is =
            |proxy: &str, peer: &str| proxy.parse::<ProxyAddress>().unwrap().contains(peer.parse().unwrap());
        assert!(is("10.0.0.5", "10.0.0.5") && !is("10.0.0.5", "10.0.0.6"));
        assert!(is("10.0.0.5", "::ffff:10.0.0.5"), "a mapped address is what it maps to");
        assert!(is("10.1.0.0/16", "10.1.255.1") && !is("10.1.0.0/16", "10.2.0.1"));
        assert!(is("2001:db8::/32", "2001:db8:1::1") && !is("2001:db8::/32", "2001:db9::1"));
        assert!(!is("2001:db8::1", "10.0.0.1") && is("::ffff:10.0.0.5", "10.0.0.5"));
    }

    #[test]
    fn everybody_is_no_proxy() {
        for text in ["10.0.0.5", "10.0.0.0/8", "2001:db8::1", "2001:db8::/64"] {
            assert_eq!(text.parse::<ProxyAddress>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "true",
            "proxy.example",
            "0.0.0.0",
            "::",
            "0.0.0.0/0",
            "10.0.0.0/0",
            "10.0.0.0/33",
            "10.0.0.5:80",
            "224.0.0.1",
        ] {
            assert!(bad.parse::<ProxyAddress>().is_err(), "{bad}");
        }
    }
}
