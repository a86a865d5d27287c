//! Which addresses may be dialled. The address that is checked here is the one that is dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, as far as the gate is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An ordinary address of the internet.
    Public,
    /// Of a private network. A rule may allow it.
    Private,
    /// This machine.
    Loopback,
    /// Never dialled, with the reason.
    Never(&'static str),
}

/// The kind of an address.
pub(crate) fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    let octets = address.octets();
    match octets {
        [127, ..] => Kind::Loopback,
        [0, ..] => Kind::Never("an address of \"this network\""),
        [169, 254, ..] => Kind::Never("a link-local or metadata address"),
        // Metadata services that are not link-local: Alibaba Cloud, and the wire server of Azure.
        [100, 100, 100, 200] | [168, 63, 129, 16] => Kind::Never("a metadata address"),
        [100, second, ..] if (64..128).contains(&second) => {
            Kind::Never("an address of a carrier's network (RFC 6598)")
        }
        [10, ..] | [192, 168, ..] => Kind::Private,
        [172, second, ..] if (16..32).contains(&second) => Kind::Private,
        [192, 0, 0, _] | [192, 88, 99, _] => Kind::Never("a reserved address"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Kind::Never("an address for documentation"),
        [198, 18 | 19, ..] => Kind::Never("an address for benchmarks"),
        [first, ..] if first >= 240 => Kind::Never("a reserved address"),
        [first, ..] if first >= 224 => Kind::Never("a multicast address"),
        _ => Kind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    let parts = address.segments();
    if address == Ipv6Addr::LOCALHOST {
        return Kind::Loopback;
    }
    // Metadata services over IPv6: AWS, Google Cloud, Oracle Cloud.
    let metadata: [[u16; 4]; 3] = [[0xfd00, 0xec2, 0, 0], [0xfd20, 0xce, 0, 0], [0xfd00, 0xc1, 0, 0]];
    if metadata.iter().any(|prefix| parts.starts_with(prefix)) {
        return Kind::Never("a metadata address");
    }
    match parts {
        // ::/96 with IPv4-compatible addresses and the unspecified one, ::ffff:0:0/96 mapped, ::ffff:0:0:0/96 translated.
        [0, 0, 0, 0, 0 | 0xffff, _, _, _] => Kind::Never("an IPv6 address that contains an IPv4 address"),
        // NAT64, well known and local use (RFC 6052, RFC 8215).
        [0x64, 0xff9b, ..] => Kind::Never("an IPv6 address that contains an IPv4 address"),
        // 6to4 and Teredo.
        [0x2002, ..] | [0x2001, 0, ..] => Kind::Never("an IPv6 address that contains an IPv4 address"),
        // ISATAP (RFC 5214): the interface identifier is 0000:5efe or 0200:5efe.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Kind::Never("an IPv6 address that contains an IPv4 address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Kind::Never("an address for documentation"),
        [0x2001, second, ..] if second < 0x200 => Kind::Never("a reserved address"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Kind::Private,
        [first, ..] if first & 0xffc0 == 0xfe80 => Kind::Never("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Kind::Never("a site-local address"),
        [first, ..] if first & 0xff00 == 0xff00 => Kind::Never("a multicast address"),
        [first, ..] if first & 0xe000 == 0x2000 => Kind::Public,
        _ => Kind::Never("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Kind {
        kind(text.parse().unwrap())
    }

    #[test]
    fn only_ordinary_addresses_are_public() {
        for text in ["1.1.1.1", "140.82.112.5", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001::1"] {
            assert_eq!(of(text), Kind::Public, "{text}");
        }
        for text in ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd12::1", "fc00::1"] {
            assert_eq!(of(text), Kind::Private, "{text}");
        }
        for text in ["127.0.0.1", "127.255.255.254", "::1"] {
            assert_eq!(of(text), Kind::Loopback, "{text}");
        }
    }

    #[test]
    fn special_addresses_are_never_dialled() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.170",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "192.88.99.1",
            "::",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "4000::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "2001:10::1",
            "5f00::1",
        ] {
            assert!(matches!(of(text), Kind::Never(_)), "{text}: {:?}", of(text));
        }
    }

    #[test]
    fn every_ipv6_form_that_embeds_ipv4_is_refused() {
        for text in [
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:0:7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "2001::7f00:1",
            "2001:0:1::2",
            "fe80::5efe:7f00:1",
            "2606:4700::5efe:7f00:1",
            "2606:4700::200:5efe:a00:1",
        ] {
            assert!(matches!(of(text), Kind::Never(_)), "{text}: {:?}", of(text));
        }
    }
}
