#include <iostream>
#include <memory>
#include <string>
#include <vector>

class Rectangle {
  public:
    Rectangle(int width, int height) : width(width), height(height) {}
    virtual ~Rectangle() = default;
    virtual std::string name() const { return "rectangle"; }
    int area() const { return width * height; }

  private:
    int width, height;
};

class Square final : public Rectangle {
  public:
    explicit Square(int side) : Rectangle(side, side) {}
    std::string name() const override { return "square"; }
};

int main() {
    auto counter = [](int step) { return [step, count = 0]() mutable { return count += step; }; };
    auto ones = counter(1), tens = counter(10);
    for (int i = 0; i < 5; i++) std::cout << (i ? " " : "") << (i == 2 || i == 4 ? tens() : ones());
    std::cout << "\n";
    std::vector<std::unique_ptr<Rectangle>> shapes;
    shapes.push_back(std::make_unique<Square>(3));
    shapes.push_back(std::make_unique<Rectangle>(2, 5));
    for (const auto &shape : shapes) std::cout << shape->name() << " " << shape->area() << "\n";
}
