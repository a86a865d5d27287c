# Runs programs in this Ruby on behalf of the guest (protocol: docs/DRIVERS.md).
#
# Mode last only: a second run never comes. The program is evaluated at the top level under its own name, so that
# what it declares, raises and returns is what `ruby main.rb` would. Nothing of the driver but the constant
# PalisadeDriver is left in the program's sight.
#
# Holds: variables are bound as objects, never as text; a forked child never speaks on the channel; a program that
# breaks the channel still runs to its end with its own status.

module PalisadeDriver
  CONTROL_FD = 3
  # Out of the way of programs that number their own descriptors from 3.
  CONTROL_FD_HOME = 100
  F_DUPFD_CLOEXEC = 1030
  READ_BYTES = 65_536
  FIELD_BYTES_MAX = 65_536
  JSON_DEPTH_MAX = 64

  # Counted messages of fields that end with NUL.
  class Channel
    def initialize
      given = IO.for_fd(CONTROL_FD, "r+b")
      @io = IO.for_fd(given.fcntl(F_DUPFD_CLOEXEC, CONTROL_FD_HOME), "r+b", autoclose: false)
      given.close
      @owner = Process.pid
      @pending = String.new
    end

    def receive
      count = Integer(field, 10)
      Array.new(count) { field.force_encoding(Encoding::UTF_8) }
    rescue EOFError, SystemCallError, ArgumentError
      nil
    end

    # What cannot be said is not said: the program may have closed the descriptor.
    def send(*fields)
      return unless Process.pid == @owner
      fields = fields.map { |text| text.to_s.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).delete("\0") }
      data = [fields.length, *fields].map { |text| text.to_s.byteslice(0, FIELD_BYTES_MAX).scrub("") + "\0" }.join.b
      data = data.byteslice(@io.syswrite(data)..-1) until data.empty?
    rescue SystemCallError, IOError, EncodingError
      nil
    end

    private

    def field
      until (at = @pending.index("\0"))
        @pending << @io.sysread(READ_BYTES)
      end
      @pending.slice!(0..at).chop!
    end
  end

  # JSON of what reads back as the same value; nil for everything else.
  def self.json(value, depth = 0)
    return nil if depth > JSON_DEPTH_MAX
    if value.nil? || value == true || value == false then value.inspect.sub("nil", "null")
    elsif value.instance_of?(Integer) then value.to_s
    elsif value.instance_of?(Float) then value.finite? ? value.to_s : nil
    elsif value.instance_of?(String) then text(value)
    elsif value.instance_of?(Array)
      items = value.map { |item| json(item, depth + 1) }
      items.include?(nil) ? nil : "[#{items.join(",")}]"
    elsif value.instance_of?(Hash) && value.each_key.all? { |key| key.instance_of?(String) }
      items = value.map { |key, item| [text(key), json(item, depth + 1)] }
      items.flatten.include?(nil) ? nil : "{#{items.map { |pair| pair.join(":") }.join(",")}}"
    end
  end

  def self.text(value)
    return nil if value.bytesize > FIELD_BYTES_MAX || value.encoding == Encoding::BINARY && !value.ascii_only?
    value = value.encode(Encoding::UTF_8)
    return nil unless value.valid_encoding?
    '"' + value.gsub(/["\\\x00-\x1f]/) { |char| format('\u%04x', char.ord) } + '"'
  rescue EncodingError
    nil
  end

  # Locals of the top level, as a program would have set them; and globals, because methods do not see those.
  def self.bind(text)
    require "json"
    values = JSON.parse(text, max_nesting: false)
    taken = global_variables
    values.each do |name, value|
      next unless name.match?(/\A[A-Za-z_][A-Za-z0-9_]*\z/)
      if name.match?(/\A[A-Z]/)
        Object.const_set(name, value) unless Object.const_defined?(name)
      else
        TOPLEVEL_BINDING.local_variable_set(name, value)
      end
      TOPLEVEL_BINDING.eval("proc { |value| $#{name} = value }").call(value) unless taken.include?(:"$#{name}")
    end
  end

  # The program without what follows __END__, which becomes DATA as for a script.
  def self.read(source)
    code = File.binread(source).force_encoding(Encoding::UTF_8)
    if (at = code =~ /^__END__\r?(\n|\z)/)
      rest = $~.end(0)
      data = File.open(source)
      data.seek(code[0...rest].bytesize)
      Object.const_set(:DATA, data)
      code = code[0...at]
    end
    code
  end

  def self.own?(place)
    place.include?(__FILE__)
  end

  # Takes the driver's own frames out of what will be shown.
  def self.clean(error)
    8.times do
      break unless error
      error.set_backtrace(error.backtrace.reject { |place| own?(place) }) if error.backtrace
      error = error.cause
    end
  rescue StandardError
    nil
  end

  def self.place(error, source)
    if error.is_a?(SyntaxError)
      line = error.message[/\A#{Regexp.escape(source)}:(\d+):/, 1]
      return line if line
    end
    found = (error.backtrace || []).find { |place| place.start_with?("#{source}:") }
    found ? found[/\A.*?:(\d+)/, 1] : ""
  end

  def self.failed(channel, id, error, source)
    clean(error)
    if error.is_a?(SystemExit)
      channel.send("done", id, "exit", error.status, "", "", "", "", "", "")
    else
      message = error.message.to_s
      message = message.sub(/\A#{Regexp.escape(source)}:\d+: /, "") if error.is_a?(SyntaxError)
      channel.send("done", id, "error", 1, "#{error.class}: #{message}", place(error, source), "", "", "", "")
    end
  end

  # `return` at the top level ends a script; to eval it is a jump that leads nowhere.
  def self.top_level_return?(error, source)
    error.is_a?(LocalJumpError) && error.reason == :return && error.backtrace.to_a.first.to_s.match?(/\A#{Regexp.escape(source)}:\d+:in [`'](<main>|Object#<main>)'/)
  end

  def self.drive
    channel = Channel.new
    $stdout.sync = true
    channel.send("ready")
    message = channel.receive
    # The environment of the run that follows.
    if message && message[0] == "given"
      message.drop(1).each_slice(2) { |name, value| ENV[name] = value }
      message = channel.receive
    end
    return unless message && message[0] == "run"
    _, id, _mode, source, code, stdin, count, *rest = message
    variables = rest.shift(count.to_i)
    $stdin.reopen(stdin) unless stdin.empty?
    ARGV.replace(rest)
    $PROGRAM_NAME = source
    begin
      bind(variables[0]) if variables[0]
      code = read(source) if code.empty?
      value = TOPLEVEL_BINDING.eval(code, source, 1)
      shown = value.nil? ? ["", ""] : [(value.inspect rescue ""), json(value) || ""]
      shown[1] = "" if shown[1].bytesize > FIELD_BYTES_MAX
      channel.send("done", id, "ok", 0, "", "", "", *shown, "")
    rescue Exception => error # whatever ends a script ends this one, after it was told
      return if top_level_return?(error, source)
      failed(channel, id, error, source)
      raise error
    end
  end
end

# RubyGems, once it is named or a library is asked for that Ruby does not bring.
autoload :Gem, "rubygems"
module Kernel
  palisade_require = instance_method(:require)
  define_method(:require) do |name|
    palisade_require.bind(self).call(name)
  rescue LoadError => missing
    raise if defined?(PalisadeDriver::GEMS) || missing.path != name
    PalisadeDriver::GEMS = true
    palisade_require.bind(self).call("rubygems")
    require(name)
  end
  private :require
end
PalisadeDriver.drive
