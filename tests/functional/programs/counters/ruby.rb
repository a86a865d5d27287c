Rectangle = Struct.new(:width, :height) do
  def name = self.class.name.downcase
  def to_s = "#{name} #{width * height}"
end

class Square < Rectangle
  def initialize(side) = super(side, side)
end

def counter(step)
  count = 0
  -> { count += step }
end

ones, tens = counter(1), counter(10)
puts [ones, ones, tens, ones, tens].map(&:call).join(" ")
puts Square.new(3), Rectangle.new(2, 5)
