# Describes this Ruby to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

require "json"
require "rbconfig"

abort "Ruby 2.7 or newer is needed, this is #{RUBY_VERSION}" if (RUBY_VERSION.split(".").map(&:to_i) <=> [2, 7, 0]) < 0

PACKAGES_MAX = 500
SYSTEM = %w[/bin /sbin /lib /usr].freeze

def within?(path, folder)
  path == folder || path.start_with?(folder.chomp("/") + "/")
end

# A home, anything that contains one, or the root.
def too_wide?(folder)
  home = ENV["HOME"].to_s
  folder == "/" || File.dirname(folder) == "/home" || (!home.empty? && within?(home, folder))
end

def binds(executable)
  wanted = [File.dirname(executable), RbConfig::CONFIG["prefix"]] + $LOAD_PATH
  wanted += Gem.path if defined?(Gem)
  wanted = wanted.map { |path| File.realpath(path) rescue nil }.compact.uniq.sort
  wanted = wanted.reject { |path| !File.directory?(path) || too_wide?(path) || SYSTEM.any? { |part| within?(path, part) } }
  wanted.reject { |path| wanted.any? { |other| other != path && within?(path, other) } }
end

def packages
  return {} unless defined?(Gem::Specification)
  Gem::Specification.map { |spec| [spec.name, spec.version.to_s] }.sort.first(PACKAGES_MAX).to_h
rescue StandardError
  {}
end

executable = File.realpath(RbConfig.ruby)
# A system's Ruby may search beneath /var/lib/gems, which need not exist.
env = {}
env["GEM_PATH"] = Gem.path.select { |path| File.directory?(path) }.join(":") if defined?(Gem) && Gem.path.any? { |path| File.directory?(path) }
puts JSON.generate(version: RUBY_VERSION, executable: executable, binds: binds(executable), env: env, packages: packages)
